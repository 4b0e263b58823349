#pragma once

/// Ranges of a tensor on a device, as core/backend/cpu/ranges/ranges.h has them, with its bits.

#include "fakequant/core/backend/cpu/ranges/ranges.h"

namespace fq::cuda {

/// On the device of x.
[[nodiscard]] Tensor amax(const Tensor& x, const Axes& kept, std::string_view function);
void block_amax(const Tensor& x, const Granularity& by, Tensor& out);
/// Waits for both.
[[nodiscard]] cpu::Range range(const Tensor& x);

}  // namespace fq::cuda
