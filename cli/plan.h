#pragma once

/// Plan: what a command will read, write and do. Making a plan checks everything that can be checked before
/// the command runs, and has no side effects.
///
///     Plan plan;
///     plan.add("evaluate on the group test", [=](Output& output, auto& result) { .. });
///     const auto result = execute(plan, output);

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

/// One step of a command.
struct Step {
  std::string text;  ///< for a person, in the infinitive: "fold batch normalisation"
  /// Prints for people, and adds to `result` for machines. Throws on failure.
  std::function<void(Output& output, nlohmann::ordered_json& result)> run;
};

struct Plan {
  std::vector<std::string> inputs = {};   ///< files that are read
  std::vector<std::string> outputs = {};  ///< files that are written
  std::vector<Step> steps = {};
  /// Starts programs that steps will need, and throws if one is missing. A recipe calls them before its first
  /// phase. Not part of a dry run.
  std::vector<std::function<void()>> program_checks = {};

  void add(std::string text, decltype(Step::run) run) { steps.push_back({std::move(text), std::move(run)}); }
};

/// Runs the steps in their order. Returns the result for machines.
nlohmann::ordered_json execute(const Plan& plan, Output& output);

}  // namespace fq::cli
