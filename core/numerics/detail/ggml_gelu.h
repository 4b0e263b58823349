#pragma once

/// GELU as ggml (llama.cpp) has it on a CPU: the approximation by tanh, from a table of f16.

#include <cmath>

#include "fakequant/core/numerics/half.h"

namespace fq::detail {

/// The entry of the table for a number that f16 has: f16(h / 2 * (1 + tanh(sqrt(2/pi) * h * (1 + 0.044715 *
/// h^2)))), each operation rounded to f32, the innermost an fma, tanh that of libm.
FQ_HD float ggml_gelu_entry(float h) {
  const float inner = 0.79788456080286535587989211986876f * h * std::fma(0.044715f * h, h, 1.0f);
  return static_cast<float>(float16(0.5f * h * (1.0f + std::tanh(inner))));
}
/// 0 up to -10, x from 10 on, between them the entry of f16(x).
FQ_HD float ggml_gelu(float x) {
  if (x <= -10.0f) return 0.0f;
  return x >= 10.0f ? x : ggml_gelu_entry(static_cast<float>(float16(x)));
}

}  // namespace fq::detail
