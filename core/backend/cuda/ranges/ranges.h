#pragma once

/// Ranges of a tensor on a device, as core/backend/cpu/ranges/ranges.h has them, with its bits.

#include <string>

#include "fakequant/core/backend/cpu/ranges/ranges.h"

namespace fq::cuda {

/// On the device of x.
[[nodiscard]] Tensor amax(const Tensor& x, const Axes& kept, std::string_view function);
void block_amax(const Tensor& x, const Granularity& by, Tensor& out);
/// Waits for both.
[[nodiscard]] cpu::Range range(const Tensor& x);

/// Ranges that change with the step, as calib/detail/ranges.h has them. Nothing waits. `nan` and `infinity`
/// are the messages of the alarms.
void check_finite(const Tensor& amax, const std::string& nan, const std::string& infinity);
void use_ranges(const Tensor& amax, float least, float factor, Tensor& out);
void move_ranges(Tensor& amax, const Tensor& batch, float momentum);
void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing);

}  // namespace fq::cuda
