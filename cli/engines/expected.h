#pragma once

/// Predictions of a checkpoint, as files for the modules of fakequant.engines.

#include <memory>

#include "fakequant/cli/engines/engine_run.h"
#include "fakequant/cli/engines/engines.h"
#include "fakequant/cli/system/programs.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

struct ExpectedOptions {
  std::int64_t batch = 64;
  std::int64_t random = 0;  ///< uniform samples in addition to the data
  std::int64_t seed = 0;    ///< seed of the uniform samples
};

/// Throws ArgumentError for random samples of a network whose inputs include whole numbers.
void check_random(const Network& network, std::int64_t random);

/// Evaluates a network on the data and on random samples. If it has live batch norms, evaluates it after
/// folding too, and leaves it folded. For engines that are compared layer by layer, records the linear
/// layers on the first samples. The files are written to `folder`. Throws Interrupted after a signal.
[[nodiscard]] Expected write_expected(Network& network, const std::shared_ptr<const Dataset>& data,
                                      const ExpectedOptions& options, const VerifyEngine& engine,
                                      const TemporaryFolder& folder, Output& output);

}  // namespace fq::cli
