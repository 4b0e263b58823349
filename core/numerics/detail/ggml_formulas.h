#pragma once

/// The blocks of ggml (llama.cpp), for host and device: 32 numbers along K share a step that is stored as
/// f16.

#include <bit>
#include <cmath>
#include <cstdint>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/half.h"

namespace fq::detail {

constexpr std::int64_t ggml_block = 32;

/// The number of the largest magnitude, with its sign; the first of equals; 0 for NaN.
FQ_HD float ggml_extreme(const float* x) {
  float most = 0.0f, extreme = 0.0f;
  for (std::int64_t i = 0; i < ggml_block; ++i)
    if (scalar::less_(most, scalar::abs_(x[i]))) {
      most = scalar::abs_(x[i]);
      extreme = x[i];
    }
  return extreme;
}

/// What one block is rounded by: code = round(fl(x * factor)); `step`, as f16, goes to the file.
struct GgmlStep {
  float step, factor;

  /// Returns the step of a block in a file, d = fl(m / code), by which the number m has the code `code`. The
  /// factor is 1 / d before d is rounded to f16.
  [[nodiscard]] static FQ_HD GgmlStep file(float m, float code) {
    const float step = m / code;
    return {step, step != 0.0f ? 1.0f / step : 0.0f};
  }
  /// d = fl(amax / 127), factor fl(127 / amax): activations as the engine runs.
  [[nodiscard]] static FQ_HD GgmlStep activation(float amax) {
    return {amax / 127.0f, amax != 0.0f ? 127.0f / amax : 0.0f};
  }
};

FQ_HD std::int8_t ggml_q4_0_code(float x, float factor) {
  return static_cast<std::int8_t>(scalar::halves_up_code(x, factor));
}
/// Half away from zero, in files.
FQ_HD std::int8_t ggml_q8_0_code(float x, float factor) {
  return static_cast<std::int8_t>(scalar::clamp_(std::round(scalar::mul_(x, factor)), -127.0f, 127.0f));
}
/// Half to even, as the engine runs.
FQ_HD std::int8_t ggml_activation_code(float x, float factor) {
  return static_cast<std::int8_t>(scalar::requantize_code(x, factor, -127.0f, 127.0f));
}

/// How a block is rounded: as it is stored in files, Q4_0 or Q8_0, or an activation as the engine runs.
enum class GgmlRounding : unsigned char { q4_0, q8_0, activation };

/// The code that llama.cpp gives the extreme of a block, in Q8_0 its magnitude.
FQ_HD float ggml_extreme_code(GgmlRounding rounding) {
  return rounding == GgmlRounding::q4_0 ? -8.0f : 127.0f;
}
/// Returns the step by which the extreme of a block gets `code`. Activations always use 127.
FQ_HD GgmlStep ggml_step(float extreme, float code, GgmlRounding rounding) {
  if (rounding == GgmlRounding::q4_0) return GgmlStep::file(extreme, code);
  const float amax = scalar::abs_(extreme);
  return rounding == GgmlRounding::q8_0 ? GgmlStep::file(amax, code) : GgmlStep::activation(amax);
}
FQ_HD std::int8_t ggml_code(float x, float factor, GgmlRounding rounding) {
  if (rounding == GgmlRounding::q4_0) return ggml_q4_0_code(x, factor);
  return rounding == GgmlRounding::q8_0 ? ggml_q8_0_code(x, factor) : ggml_activation_code(x, factor);
}

}  // namespace fq::detail
