#pragma once

/// Blocks of ggml (llama.cpp), for host and device: 32 numbers along K share a step that is stored as f16.

#include <bit>
#include <cmath>
#include <cstdint>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

constexpr std::int64_t ggml_block = 32;

/// Returns the number of the largest magnitude with its sign. Returns the first of equal ones, and 0 for
/// NaN.
FQ_HD float ggml_extreme(const float* x) {
  float most = 0.0f, extreme = 0.0f;
  for (std::int64_t i = 0; i < ggml_block; ++i)
    if (scalar::less_(most, scalar::abs_(x[i]))) {
      most = scalar::abs_(x[i]);
      extreme = x[i];
    }
  return extreme;
}

/// Parameters of a block: code = round(fl(x * factor)). `step` is stored in the file as f16.
struct GgmlStep {
  float step, factor;

  /// Returns the step of a block in a file, d = fl(m / code), so that the number m has the code `code`. The
  /// factor is 1 / d, with d before rounding to f16.
  [[nodiscard]] static FQ_HD GgmlStep file(float m, float code) {
    const float step = m / code;
    return {step, step != 0.0f ? 1.0f / step : 0.0f};
  }
  /// Returns d = fl(amax / 127) with factor fl(127 / amax), used by the engine for activations.
  [[nodiscard]] static FQ_HD GgmlStep activation(float amax) {
    return {amax / 127.0f, amax != 0.0f ? 127.0f / amax : 0.0f};
  }
};

FQ_HD std::int8_t ggml_q4_0_code(float x, float factor) {
  return static_cast<std::int8_t>(scalar::halves_up_code(x, factor));
}
/// Rounds half away from zero, as in files.
FQ_HD std::int8_t ggml_q8_0_code(float x, float factor) {
  return static_cast<std::int8_t>(scalar::clamp_(std::round(scalar::mul_(x, factor)), -127.0f, 127.0f));
}
/// Rounds half to even, as the engine does for activations.
FQ_HD std::int8_t ggml_activation_code(float x, float factor) {
  return static_cast<std::int8_t>(scalar::requantize_code(x, factor, -127.0f, 127.0f));
}

/// How a block is rounded: as stored in a file (Q4_0 or Q8_0), or as an activation in the engine.
enum class GgmlRounding : unsigned char { q4_0, q8_0, activation };

/// Returns the code of the extreme of a block in llama.cpp; for Q8_0 the code of its magnitude.
FQ_HD float ggml_extreme_code(GgmlRounding rounding) {
  return rounding == GgmlRounding::q4_0 ? -8.0f : 127.0f;
}
/// Returns the step for which the extreme of a block has `code`. Activations always use 127.
FQ_HD GgmlStep ggml_step(float extreme, float code, GgmlRounding rounding) {
  if (rounding == GgmlRounding::q4_0) return GgmlStep::file(extreme, code);
  const float amax = scalar::abs_(extreme);
  return rounding == GgmlRounding::q8_0 ? GgmlStep::file(amax, code) : GgmlStep::activation(amax);
}
FQ_HD std::int8_t ggml_code(float x, float factor, GgmlRounding rounding) {
  if (rounding == GgmlRounding::q4_0) return ggml_q4_0_code(x, factor);
  return rounding == GgmlRounding::q8_0 ? ggml_q8_0_code(x, factor) : ggml_activation_code(x, factor);
}

// ggml's GELU on a CPU: the approximation by tanh, from a table of f16.

/// The table entry of an f16 number: f16(h / 2 * (1 + tanh(sqrt(2/pi) * h * (1 + 0.044715 * h^2)))). Each
/// operation is rounded to f32, the innermost is an fma, and tanh is libm's.
FQ_HD float ggml_gelu_entry(float h) {
  const float inner = 0.79788456080286535587989211986876f * h * std::fma(0.044715f * h, h, 1.0f);
  return static_cast<float>(float16(0.5f * h * (1.0f + std::tanh(inner))));
}
/// 0 up to -10, x from 10, and the table entry of f16(x) between them.
FQ_HD float ggml_gelu(float x) {
  if (x <= -10.0f) return 0.0f;
  return x >= 10.0f ? x : ggml_gelu_entry(static_cast<float>(float16(x)));
}

}  // namespace fq::detail
