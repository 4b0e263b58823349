#pragma once

/// Runs an exported network in its engine, by a module of fakequant.engines, and checks the report.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/engines/engines.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

/// Reference values for the comparison in the engine.
struct Expected {
  std::vector<std::string> files;   ///< predictions of the checkpoint
  std::vector<std::string> folded;  ///< predictions after folding; empty without live batch norms
  std::int64_t samples = 0, logits = 0;
  std::map<std::string, std::int64_t> codes;  ///< number of codes, by quantizer
  std::string layers = {};                    ///< file of linear layers, for layer by layer comparison
};

/// Reads the report of `program` and checks it. Every key must have a value of its type and range. The report
/// must compare all of `expected`, and list each quantizer with all its codes or as missing. The verdict
/// (`same`) must agree with the counts and with the exit status `status`. Throws BackendError naming the
/// wrong key or quantizer.
[[nodiscard]] nlohmann::ordered_json read_engine_report(const std::string& path, const std::string& program,
                                                        int status, const Expected& expected);

/// Options of an engine, and the allowed differences.
struct EngineOptions {
  EngineHomeOptions home;
  std::optional<std::string> level = {};  ///< optimisation level of ONNX Runtime
  std::string session = {};               ///< session options of ONNX Runtime: KEY=VALUE,..
  std::optional<double> tolerance = {}, code_tolerance = {}, flip_tolerance = {};
  double timeout = 3600;  ///< seconds; 0: none
};

/// Adds the flags engines, level, session, tolerances, timeout and python.
void add_engine_flags(FlagSet& set, EngineOptions& options);
/// Returns the options of --session. Throws ArgumentError for a text that is not KEY=VALUE,..
[[nodiscard]] std::vector<std::string> session_options(const std::string& session);

/// One run of an engine.
struct EngineRun {
  const VerifyEngine& engine;
  const EngineOptions& options;
  const std::string& model;             ///< the exported file
  std::optional<std::int64_t> threads;  ///< empty: the engine chooses
};

/// Compares the model with `expected`, prints the output of the engine and returns the report. Throws
/// ArgumentError if Python or a package is missing, and FileError for an unusable model. Throws BackendError
/// if Python ends by a signal or the timeout, or if its report is incomplete. Throws Interrupted after
/// Ctrl-C.
[[nodiscard]] nlohmann::ordered_json run_engine(const EngineRun& run, const Expected& expected,
                                                const TemporaryFolder& folder, Output& output);

}  // namespace fq::cli
