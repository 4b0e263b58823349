#pragma once

/// Engines that run exported networks: a table, and their installation on demand.

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
  std::string_view suffix;  ///< suffix of the files that the engine runs
  std::string_view format;  ///< format of `export` for these files
  std::string_view module;  ///< Python module that runs the file
  std::string_view home;    ///< name of the engine for fakequant.engines.install
  std::string_view target;  ///< required target of the checkpoint; empty: any
  bool codes;               ///< whether codes of activations can be read
  bool layers;              ///< whether linear layers are compared one by one
};

[[nodiscard]] std::span<const VerifyEngine> verify_engines();
/// Returns the names of the engines, then "all".
[[nodiscard]] std::vector<std::string> verify_engine_names();
/// Returns the engine of that name. For "all", returns the engines for the suffix of `model`. Throws
/// ArgumentError if no engine matches.
[[nodiscard]] std::vector<const VerifyEngine*> find_engines(const std::string& name,
                                                            const std::string& model);
/// Throws ArgumentError if the network has another target than the engine. The message names the target to
/// train for.
void check_target(const VerifyEngine& engine, const Network& network);

/// Locations of an engine.
struct EngineHomeOptions {
  std::string engines = {};  ///< folder; empty: FAKEQUANT_ENGINES, or a folder of the user
  std::string python = {};   ///< program; empty: FAKEQUANT_PYTHON, or an installed one
};

/// A Python that runs an engine, and the folder of the engine.
struct EngineHome {
  std::string python;
  std::string folder;
};

/// Installs a missing engine, with a message. Does not change a Python that --python or FAKEQUANT_PYTHON
/// names, nor python3 for ONNX Runtime without --engines and FAKEQUANT_ENGINES. `command` is for messages.
/// Throws BackendError with the reason if the engine cannot be installed, and Interrupted after Ctrl-C.
[[nodiscard]] EngineHome engine_home(const EngineHomeOptions& options, const std::string& command,
                                     std::string_view name, const TemporaryFolder& folder, Output& output);

/// Checks the packages of a Python in which `engine_home` installs nothing. Throws ArgumentError if it cannot
/// be started or lacks a package of the engine's module.
void check_packages(const EngineHomeOptions& options, const VerifyEngine& engine);

}  // namespace fq::cli
