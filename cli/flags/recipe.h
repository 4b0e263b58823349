#pragma once

/// Recipes: one JSON file with a model, data and phases (docs/command-line.md).

#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"

namespace fq::cli {

/// One phase: a command and its line.
struct Phase {
  std::string name;  ///< "train in float"
  std::string command;
  std::vector<std::string> arguments;
  double expected_seconds = 0;  ///< on the machine of the recipe; 0 when it does not say
};

struct Recipe {
  std::string folder;  ///< where outputs of phases go
  std::vector<Phase> phases;
};

/// Reads a recipe; flags given to `run` (data, seed, threads, output, model, set) win over the file's own.
/// Files to read that are not there are looked up beside the recipe, and in the folder above it.
/// All phases are checked before the first is run. Throws FileError naming the line of a syntax error, and
/// ArgumentError
/// `[run] file:line: unknown key ..` naming the nearest key.
[[nodiscard]] Recipe read_recipe(const std::string& path, const Flags& flags);

/// Checks every phase, with what those before it will have written; says nothing of what is for when it runs.
/// Throws what a phase would throw before its work, naming the phase.
void check_recipe(const Recipe& recipe);

}  // namespace fq::cli
