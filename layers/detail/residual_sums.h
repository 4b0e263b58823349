#pragma once

/// Additions that have no use for codes: those of a transformer's residual stream.

#include <set>
#include <string>

#include "fakequant/layers/model/trace.h"

namespace fq::detail {

/// Paths of additions whose sums nothing reads but operators that engines compute in floats whatever they
/// read (`engine_form`: layer norm, RMS norm, GELU, ..) and other such additions, also through what only
/// moves values. Rounding what they add costs accuracy and makes no operator run on codes. An addition that
/// makes the network's output, or is called elsewhere too where its sum is read otherwise, is none; nor is
/// one that adds what a convolution computed: engines multiply its codes only where its sums are rounded
/// again.
[[nodiscard]] std::set<std::string> residual_sums(const TraceGraph& graph);

}  // namespace fq::detail
