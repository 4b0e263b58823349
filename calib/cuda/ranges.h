#pragma once

/// Ranges of a tensor on a device, as calib/cpu/ranges.h has them, with its bits; not a public header.

#include "fakequant/calib/cpu/ranges.h"

namespace fq::cuda {

/// On the device of x.
[[nodiscard]] Tensor amax(const Tensor& x, const Axes& kept, std::string_view function);
/// Waits for both.
[[nodiscard]] cpu::Range range(const Tensor& x);

}  // namespace fq::cuda
