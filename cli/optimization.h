#pragma once

/// How a run goes down: --optimizer, --schedule and the numbers of both.

#include <cstdint>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/schedule.h"

namespace fq::cli {

void add_optimization_flags(FlagSet& set, const char* rate);
/// Throws ArgumentError naming the nearest word.
[[nodiscard]] OptimizerOptions read_optimizer(const Flags& flags);
/// Epochs that are given become steps.
[[nodiscard]] ScheduleOptions read_schedule(const Flags& flags, std::int64_t steps_per_epoch);

}  // namespace fq::cli
