#pragma once

/// Squared errors of fake quantization for many ranges in one pass, on the CPU.

#include <span>

#include "fakequant/core/format.h"

namespace fq::cpu {

/// errors[k] += sum of (y - x)^2, y = x fake quantized with amax[k] by ModelOpt's formula: integers, E4M3, or
/// E2M1 with scale = amax / 6. Squares of 64 elements are added in f32, such sums in double, in their order:
/// the bits are the same on every processor. Errors of integers of up to 8 bits are taken as parts of a step,
/// q - fl(x * s), which is within 2^-24 * 255 steps of y - x. `x` and `amax` finite.
void add_squared_errors(std::span<const float> x, std::span<const float> amax, const Format& format,
                        double* errors);

}  // namespace fq::cpu
