#pragma once

/// Folders of engines. fakequant.engines.install makes an engine on demand.

#include <string>

#include "fakequant/cli/engines/verify_engine.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

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
