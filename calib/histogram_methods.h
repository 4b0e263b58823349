#pragma once

/// The ways to read amax from a histogram, by name; not a public header.

#include <string_view>

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/histogram.h"

namespace fq::detail {

/// Throws ArgumentError unless it is "percentile", "histogram" (the same), "entropy" or "mse".
void check_histogram_method(std::string_view method);

/// By such a method, which replaces the one in `options`.
[[nodiscard]] float amax_of(const Histogram& histogram, std::string_view method, const AmaxOptions& options);

}  // namespace fq::detail
