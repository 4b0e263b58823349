#pragma once

/// Low-rank adapters as flags.

#include "fakequant/cli/flags/flags.h"
#include "fakequant/train/low_rank.h"

namespace fq::cli {

/// --lora, --lora-alpha and --lora-layers.
void add_low_rank_flags(FlagSet& set);
/// What they ask for; a rank of 0 without --lora. Throws ArgumentError for numbers out of range, and for the
/// others without --lora.
[[nodiscard]] LowRankOptions read_low_rank(const Flags& flags);

}  // namespace fq::cli
