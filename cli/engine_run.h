#pragma once

/// Runs an exported network in its engine, by a module of the Python package.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/engines/engine_home.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/cli/tables/engine_report.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

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
