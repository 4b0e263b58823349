#pragma once

/// Ranges and counts of tensors of any device; not a public header.

#include <span>

#include "fakequant/calib/cpu/count_kernels.h"
#include "fakequant/calib/cpu/ranges.h"

namespace fq::detail {

/// The largest |x| for each index of the kept axes, as cpu::amax gives it, on the device of x. `x` f32, not
/// empty, any layout.
[[nodiscard]] Tensor amax(const Tensor& x, const Axes& kept, std::string_view function);
/// The largest magnitude and the smallest element; on a GPU it waits for them.
[[nodiscard]] cpu::Range range(const Tensor& x);
/// Adds every |x| that the rule does not drop to its bin; on a GPU it waits for the counts.
void count(const Tensor& x, const cpu::BinRule& rule, std::span<std::int64_t> counts);

}  // namespace fq::detail
