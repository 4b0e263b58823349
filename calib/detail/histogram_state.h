#pragma once

/// Histograms in states of calibrators.

#include "fakequant/calib/histogram.h"

namespace fq {
class StateDict;
}

namespace fq::detail {

/// `counts` i64, `edges` f32, or f64 where it has wide ones, `zeros` i64.
void save_histogram(const Histogram& histogram, StateDict& state);
/// What save_histogram left. Throws ArgumentError, opened by `where`, when a tensor is missing or of another
/// shape or type, for negative counts, edges that do not rise or, if `from_zero`, do not begin at 0, and more
/// than max_bins bins.
[[nodiscard]] Histogram load_histogram(const StateDict& state, bool from_zero, const char* where);

}  // namespace fq::detail
