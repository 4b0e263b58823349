#pragma once

/// Engines that run exported networks: their table, and their installation on demand.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/cli/system/programs.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// One value of `verify --engine`.
struct VerifyEngine {
  std::string_view name;
  std::string_view suffix;  ///< of the files that it runs
  std::string_view format;  ///< of `export` that writes them
  std::string_view module;  ///< of Python, which runs the file
  std::string_view home;    ///< name of the engine for fakequant.engines.install
  std::string_view target;  ///< what the checkpoint must have been trained for; empty: any
  bool codes;               ///< whether codes of activations can be read in it
  bool layers;              ///< whether linear layers are compared one by one
};

[[nodiscard]] std::span<const VerifyEngine> verify_engines();
/// Returns the names of the engines, then "all".
[[nodiscard]] std::vector<std::string> verify_engine_names();
/// Returns the engine of that name. "all" means the engines that read the suffix of `model`. Throws
/// ArgumentError if there is no such engine.
[[nodiscard]] std::vector<const VerifyEngine*> find_engines(const std::string& name,
                                                            const std::string& model);
/// Throws ArgumentError naming the target to train for.
void check_target(const VerifyEngine& engine, const Network& network);

/// Places of an engine.
struct EngineHomeOptions {
  std::string engines = {};  ///< folder; empty: FAKEQUANT_ENGINES, or a folder of the user
  std::string python = {};   ///< program; empty: FAKEQUANT_PYTHON, or one that is installed
};

/// A Python that runs an engine, and the folder of what belongs to it.
struct EngineHome {
  std::string python;
  std::string folder;
};

/// Installs an engine that is missing, and prints so. A Python that --python or FAKEQUANT_PYTHON names is
/// used as it is; so is python3 for ONNX Runtime without --engines and FAKEQUANT_ENGINES. `command` is for
/// messages. Throws BackendError with the reason if the engine cannot be installed, and Interrupted after
/// Ctrl-C.
[[nodiscard]] EngineHome engine_home(const EngineHomeOptions& options, const std::string& command,
                                     std::string_view name, const TemporaryFolder& folder, Output& output);

/// Checks a Python that `engine_home` uses as it is. Throws ArgumentError if it cannot be started or lacks a
/// package of the engine's module.
void check_packages(const EngineHomeOptions& options, const VerifyEngine& engine);

}  // namespace fq::cli
