#pragma once

/// Floats on their way into products of codes and out of them, for every vector instruction set.

#include <cstdint>

#include "fakequant/core/numerics/half.h"

namespace fq::cpu {

/// out[i] = bf16(dy[i] * scale[i % width]), with the bits of half.h; width a multiple of 16.
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale,
                   bfloat16* out);
/// The same values as floats.
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out);
/// A row of the same, which is added to `sums` as it is.
void scale_and_sum(const float* dy, std::int64_t count, const float* scale, bfloat16* out, float* sums);
void scale_and_sum(const float* dy, std::int64_t count, const float* scale, float* out, float* sums);

/// y[i] = fl(fl(y[i] * scale[i % width]) + bias[i % width]); width as above.
void scale_and_add(float* y, std::int64_t count, std::int64_t width, const float* scale, const float* bias);

}  // namespace fq::cpu
