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

/// What was given to the engine to be compared with.
struct Expected {
  std::vector<std::string> files;   ///< of what the checkpoint itself computes
  std::vector<std::string> folded;  ///< of the same with its live batch norms folded; none where none is live
  std::int64_t samples = 0, logits = 0;
  std::map<std::string, std::int64_t> codes;  ///< their number, by quantizer
  std::string layers = {};  ///< a file of linear layers, for engines that are compared one by one
};

/// Reads the report that `program` wrote and checks it: every key is there with a value of its type and
/// range, all of `expected` was compared, each quantizer with all its codes or named as missing, and the
/// verdict (`same`) is that of the counts and of `status`, its exit status. Throws BackendError naming what
/// is wrong: the key, or the quantizer.
[[nodiscard]] nlohmann::ordered_json read_engine_report(const std::string& path, const std::string& program,
                                                        int status, const Expected& expected);

/// How an engine runs, and which differences it may have.
struct EngineOptions {
  EngineHomeOptions home;
  std::optional<std::string> level = {};  ///< of optimisation, of ONNX Runtime
  std::string session = {};               ///< KEY=VALUE,.., of ONNX Runtime
  std::optional<double> tolerance = {}, code_tolerance = {}, flip_tolerance = {};
  double timeout = 3600;  ///< seconds; 0: none
};

/// engines, level, session, tolerances, timeout, python
void add_engine_flags(FlagSet& set, EngineOptions& options);
/// Returns the options of --session. Throws ArgumentError for text that is no KEY=VALUE,..
[[nodiscard]] std::vector<std::string> session_options(const std::string& session);

/// One run of an engine.
struct EngineRun {
  const VerifyEngine& engine;
  const EngineOptions& options;
  const std::string& model;             ///< the exported file
  std::optional<std::int64_t> threads;  ///< without, the engine chooses
};

/// Compares the model with `expected`, prints the output of the engine and returns the report. Throws
/// ArgumentError if Python or a package is missing, and FileError for an unusable model. Throws BackendError
/// if Python ends by a signal or the timeout, or its report is incomplete, and Interrupted after Ctrl-C.
[[nodiscard]] nlohmann::ordered_json run_engine(const EngineRun& run, const Expected& expected,
                                                const TemporaryFolder& folder, Output& output);

}  // namespace fq::cli
