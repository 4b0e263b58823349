#pragma once

/// What a Trainer takes: each function throws ArgumentError that names the option, its value and what is
/// allowed.

#include "fakequant/layers/modules/module.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/loop/trainer.h"

namespace fq::detail {

/// Of the options alone.
void check_options(const TrainerOptions& options);

/// What is to happen at a step of the run has to be one of its `steps`.
void check_steps(const TrainerOptions& options, std::int64_t steps);

/// Batch norm's statistics can be made anew from `batches` batches of an epoch.
void check_reestimation(Module& model, const DataLoader& training, std::int64_t batches);

/// The loader's options are those of this rank's part of the steps; logs a warning for sums that are not
/// exact.
void check_ranks(const TrainerOptions& options, const LoaderOptions& loader);

/// Adapters of low rank, and nothing else, write to the weights, whose grid stays.
void check_low_rank(const TrainerOptions& options);

}  // namespace fq::detail
