#pragma once

/// Ranges that change with the step; all f32, of the same shape.

#include <string>

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Throws NumericError with one of the texts for a range that is NaN or infinite.
void check_finite(const Tensor& amax, const std::string& nan, const std::string& infinity);
/// out = used_range(amax, least, factor) each.
void use_ranges(const Tensor& amax, float least, float factor, Tensor& out);
/// amax = moved_range(amax, batch, momentum) each.
void move_ranges(Tensor& amax, const Tensor& batch, float momentum);
/// amax = grown_range(amax, batch) where `growing` is not 0.
void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing);

}  // namespace fq::cpu
