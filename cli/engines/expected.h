#pragma once

/// Predictions of a checkpoint, as files that a module of fakequant.engines compares.

#include "fakequant/cli/engines/verify_engine.h"
#include "fakequant/cli/system/temporary_folder.h"
#include "fakequant/cli/tables/engine_report.h"
#include "fakequant/cli/tables/output.h"

namespace fq::cli {

/// Evaluates --checkpoint on the samples of --data and --random, as it was trained and, where it has live
/// batch norms, as it is folded; of engines that are compared layer by layer also what the linear layers did
/// with the first samples. The files lie in `folder`. Throws ArgumentError for a checkpoint of another target
/// or without calibration and for samples that do not fit, Interrupted after a signal.
[[nodiscard]] Expected write_expected(const Flags& flags, const VerifyEngine& engine,
                                      const TemporaryFolder& folder, Output& output);

}  // namespace fq::cli
