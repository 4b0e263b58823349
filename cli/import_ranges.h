#pragma once

/// Ranges that were calibrated elsewhere, as the flags say.

#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// Gives a quantized network the ranges of --import. Throws ArgumentError listing quantizers that have none
/// then, unless data will calibrate them.
void import_ranges(Network& network, const Flags& flags, bool data_follows, Output& output);

}  // namespace fq::cli
