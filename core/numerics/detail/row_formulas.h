#pragma once

/// Formulas of layer normalization, softmax and the losses, for one element. For host and device.

#include <cmath>
#include <cstdint>

#include "fakequant/core/numerics/detail/function_formulas.h"

namespace fq::detail {

template <class T>
FQ_HD T layer_normal(T x, T mean, T inverse) {
  return (x - mean) * inverse;
}
template <class T>
FQ_HD T layer_norm_value(T normal, T gamma, T beta) {
  return normal * gamma + beta;
}
/// g = dy * gamma; `average` is the mean of g, `slope` that of g * normal.
template <class T>
FQ_HD T layer_norm_gradient(T g, T normal, T inverse, T average, T slope) {
  return inverse * (g - average - normal * slope);
}

/// p = exp(x - max) / sum, or its logarithm x - max - log(sum).
template <class T>
FQ_HD T softmax_power(T x, T largest) {
  return power_below_zero(x - largest);
}
template <class T>
FQ_HD T softmax_value(T x, T largest, T sum) {
  return softmax_power(x, largest) / sum;
}
template <class T>
FQ_HD T log_softmax_value(T x, T largest, T log_sum) {
  return (x - largest) - log_sum;
}
/// `sum` is that of softmax_term over the line.
template <class T>
FQ_HD T softmax_term(T dy, T y, bool logarithm) {
  return logarithm ? dy : dy * y;
}
template <class T>
FQ_HD T softmax_gradient(T dy, T y, T sum, bool logarithm) {
  return logarithm ? dy - std::exp(y) * sum : y * (dy - sum);
}

/// 0 of nothing.
FQ_HD double mean_of(double total, std::int64_t count) {
  return count == 0 ? 0.0 : total / static_cast<double>(count);
}
template <class T>
FQ_HD double squared_difference(T a, T b) {
  const double d = static_cast<double>(a) - static_cast<double>(b);
  return d * d;
}

/// What a class ought to have, by its label and the smoothing e: 1 - e + e/C, or e/C.
struct SmoothedTarget {
  double smoothing, share;

  SmoothedTarget(double e, std::int64_t classes) : smoothing(e), share(e / static_cast<double>(classes)) {}
  FQ_HD double weight(bool labelled) const { return labelled ? share + (1.0 - smoothing) : share; }
  /// d loss / d logit, `factor` times.
  template <class T>
  FQ_HD T gradient(T log_p, bool labelled, T factor) const {
    const T target = static_cast<T>(share) + (labelled ? static_cast<T>(1.0 - smoothing) : T{0});
    return factor * (std::exp(log_p) - target);
  }
};

}  // namespace fq::detail
