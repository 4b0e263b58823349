#pragma once

/// Gradients on their way into products of codes, for every vector instruction set; not a public header.

#include <cstdint>

#include "fakequant/core/half.h"

namespace fq::cpu {

/// out[i] = bf16(dy[i] * scale[i % width]), with the bits of half.h; width a multiple of 16.
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale,
                   bfloat16* out);
/// The same values as floats.
void scale_to_bf16(const float* dy, std::int64_t count, std::int64_t width, const float* scale, float* out);

}  // namespace fq::cpu
