#pragma once

/// Ranges of a device that change with the step, as calib/detail/ranges.h has them. Nothing waits.

#include <string>

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// `nan` and `infinity` are the messages of the alarms.
void check_finite(const Tensor& amax, const std::string& nan, const std::string& infinity);
void use_ranges(const Tensor& amax, float least, float factor, Tensor& out);
void move_ranges(Tensor& amax, const Tensor& batch, float momentum);

}  // namespace fq::cuda
