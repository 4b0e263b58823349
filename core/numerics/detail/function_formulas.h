#pragma once

/// The formulas of `function_formulas-inl.h` for one float, on host and device. A double has the functions of
/// the standard library.

#include <cmath>
#include <type_traits>

#include "fakequant/core/numerics/detail/formulas.h"
//
#include "fakequant/core/numerics/detail/function_formulas-inl.h"

namespace fq::detail {

/// e^x for x <= 0.
template <class T>
FQ_HD T power_below_zero(T x) {
  if constexpr (std::is_same_v<T, float>) return scalar::exp_below_zero(x);
  return std::exp(x);
}

}  // namespace fq::detail
