#pragma once

/// Arrays of f32 to those of half its width, with the bits of half.h, for every vector instruction
/// set, chosen when the program runs.

#include <cstdint>

#include "fakequant/core/numerics/half.h"

namespace fq::cpu {

void narrow_floats(const float* x, std::int64_t count, bfloat16* y);
void narrow_floats(const float* x, std::int64_t count, float16* y);

}  // namespace fq::cpu
