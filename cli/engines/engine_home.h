#pragma once

/// Folders of engines. fakequant.engines.install makes an engine on demand.

#include <string>

#include "fakequant/cli/engines/verify_engine.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

/// A Python that runs an engine, and the folder of what belongs to it.
struct EngineHome {
  std::string python;
  std::string folder;
};

/// --engines, else FAKEQUANT_ENGINES, else fakequant/engines in the user's folder for caches.
[[nodiscard]] std::string engines_folder(const Flags& flags);

/// Makes the engine where it is not there yet, which `output` is told of. A Python that --python or
/// FAKEQUANT_PYTHON names is taken as it is, and nothing is made; so is python3 for ONNX Runtime where
/// neither --engines nor FAKEQUANT_ENGINES is given. Throws BackendError when the engine cannot be had, with
/// the reason and the file that tells more; Interrupted after Ctrl-C.
[[nodiscard]] EngineHome engine_home(const Flags& flags, std::string_view name, const TemporaryFolder& folder,
                                     Output& output);

/// Before there is anything to verify: of a Python that `engine_home` takes as it is. Throws ArgumentError
/// where it cannot be started or lacks a package of the engine's module.
void check_packages(const Flags& flags, const VerifyEngine& engine);

}  // namespace fq::cli
