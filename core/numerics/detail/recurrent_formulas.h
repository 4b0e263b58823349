#pragma once

/// Instantiates `recurrent_formulas-inl.h` for one float or double, on host and device, and adds the
/// formulas of dynamically quantized codes. A double uses the functions of the standard library.

#include <cmath>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/recurrent_arrays.h"

namespace fq::scalar {

FQ_HD double constant_(double, float value) { return static_cast<double>(value); }
FQ_HD double max_(double a, double b) { return a > b ? a : b; }
FQ_HD bool less_(double a, double b) { return a < b; }
FQ_HD double select_(bool condition, double yes, double no) { return condition ? yes : no; }
FQ_HD double sigmoid_gate(double x) { return 1.0 / (1.0 + std::exp(-x)); }
FQ_HD double tanh_gate(double x) { return std::tanh(x); }

}  // namespace fq::scalar
//
#include "fakequant/core/numerics/detail/recurrent_formulas-inl.h"

namespace fq::detail {

/// Loads and stores one number at a time.
template <class T>
struct OneNumber {
  FQ_HD T load(const T* p) const { return *p; }
  FQ_HD void store(T v, T* p) const { *p = v; }
};

/// Codes 0 .. 255 of ONNX's DynamicQuantizeLinear: q = sat(rne(fl(x / scale)) + zero), for a range that
/// includes 0. The scale is 1 if all values are 0.
struct DynamicGrid {
  float scale, zero;

  [[nodiscard]] static FQ_HD DynamicGrid of(float lowest, float highest) {
    const float low = lowest < 0.0f ? lowest : 0.0f, high = highest > 0.0f ? highest : 0.0f;
    const float step = (high - low) / 255.0f, scale = step > 0.0f ? step : 1.0f;
    return {scale, scalar::rint_(scalar::clamp_(0.0f - low / scale, 0.0f, 255.0f))};
  }
  [[nodiscard]] FQ_HD std::uint8_t code(float x) const {
    return static_cast<std::uint8_t>(scalar::linear_code(x, scale, zero, 0.0f, 255.0f));
  }
  [[nodiscard]] FQ_HD float value(std::uint8_t code) const {
    return scalar::linear_value(static_cast<float>(code), scale, zero);
  }
  /// Returns a sum of products of codes q and w as a float: fl(fl(sum of (q - zero) * w) * fl(scale *
  /// w_scale)).
  [[nodiscard]] FQ_HD float sum(std::int32_t products, std::int32_t weights, float w_scale) const {
    const std::int32_t centred = products - static_cast<std::int32_t>(zero) * weights;
    return static_cast<float>(centred) * (scale * w_scale);
  }
};

}  // namespace fq::detail
