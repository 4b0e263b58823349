#pragma once

/// Ranges that were calibrated elsewhere.

#include <string>

#include "fakequant/cli/tables/output.h"
#include "fakequant/network/network.h"

namespace fq::cli {

/// Copies the ranges of the file `path` to a quantized network. Throws ArgumentError listing quantizers
/// without a range, unless data will calibrate them.
void import_ranges(Network& network, const std::string& path, bool data_follows, const std::string& command,
                   Output& output);

}  // namespace fq::cli
