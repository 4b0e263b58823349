#pragma once

/// Instantiates the formulas of the `*_formulas-inl.h` files for one float, on host and device, for example
/// `fq::scalar::quantize_code(..)`. These formulas return the value of a code; this header converts
/// minifloats to bytes.

#include <cmath>
#include <limits>
#include <type_traits>

#include "fakequant/core/numerics/detail/scalar.h"
//
#include "fakequant/core/numerics/detail/formulas-inl.h"
#include "fakequant/core/numerics/detail/function_formulas-inl.h"
#include "fakequant/core/numerics/detail/histogram_formulas-inl.h"
#include "fakequant/core/numerics/detail/update_formulas-inl.h"

namespace fq::scalar {

/// The byte of an E4M3 value (OCP OFP8): 1 sign, 4 exponent bits of bias 7, 3 mantissa bits; NaN is 0x7f.
FQ_HD std::uint8_t encode_e4m3(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 24) & 0x80u;
  if (is_nan_(value)) return static_cast<std::uint8_t>(sign | 0x7fu);
  const float magnitude = abs_(value);
  if (magnitude < 0x1p-6f)
    return static_cast<std::uint8_t>(sign | static_cast<std::uint32_t>(magnitude * 0x1p9f));
  return static_cast<std::uint8_t>(sign | (((word & 0x7fffffffu) - 0x3c000000u) >> 20));
}

FQ_HD float decode_e4m3(std::uint8_t byte) {
  const std::uint32_t magnitude = byte & 0x7fu;
  const float sign = (byte & 0x80u) != 0 ? -1.0f : 1.0f;
  if (magnitude == 0x7fu) return std::bit_cast<float>(0x7fc00000u);
  if (magnitude < 8u) return sign * (static_cast<float>(magnitude) * 0x1p-9f);
  return sign * std::bit_cast<float>((magnitude << 20) + 0x3c000000u);
}

}  // namespace fq::scalar

namespace fq::detail {

/// Returns e^x for x <= 0. A double uses the function of the standard library.
template <class T>
FQ_HD T power_below_zero(T x) {
  if constexpr (std::is_same_v<T, float>) return scalar::exp_below_zero(x);
  return std::exp(x);
}

}  // namespace fq::detail
