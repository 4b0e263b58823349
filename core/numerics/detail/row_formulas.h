#pragma once

/// Formulas of layer normalization, softmax and the losses, for one element. For host and device.

#include <cmath>
#include <cstdint>

#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::detail {

template <class T>
FQ_HD T layer_normal(T x, T mean, T inverse) {
  return (x - mean) * inverse;
}
template <class T>
FQ_HD T layer_norm_value(T normal, T gamma, T beta) {
  return normal * gamma + beta;
}
/// Here g = dy * gamma, `average` is the mean of g, and `slope` the mean of g * normal.
template <class T>
FQ_HD T layer_norm_gradient(T g, T normal, T inverse, T average, T slope) {
  return inverse * (g - average - normal * slope);
}

// RMS normalization: y = x / root * gamma with root = sqrt(mean(x^2) + eps) (Zhang and Sennrich,
// arXiv:1910.07467).

/// `squares` is the sum of x^2, `share` 1 / the number of elements.
template <class T>
FQ_HD T rms_root(T squares, T share, T eps) {
  return std::sqrt(squares * share + eps);
}
template <class T>
FQ_HD T rms_normal(T x, T root) {
  return x / root;
}
/// Here g = dy * gamma / root, and `slope` is the mean of g * normal.
template <class T>
FQ_HD T rms_norm_gradient(T g, T normal, T slope) {
  return g - normal * slope;
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
/// `sum` is the sum of softmax_term over the line.
template <class T>
FQ_HD T softmax_term(T dy, T y, bool logarithm) {
  return logarithm ? dy : dy * y;
}
template <class T>
FQ_HD T softmax_gradient(T dy, T y, T sum, bool logarithm) {
  return logarithm ? dy - std::exp(y) * sum : y * (dy - sum);
}

/// Returns the mean, or 0 for a count of 0.
FQ_HD double mean_or_zero(double total, double count) { return count == 0 ? 0.0 : total / count; }
FQ_HD double mean_or_zero(double total, std::int64_t count) {
  return mean_or_zero(total, static_cast<double>(count));
}
template <class T>
FQ_HD double squared_difference(T a, T b) {
  const double d = static_cast<double>(a) - static_cast<double>(b);
  return d * d;
}

/// Smoothed targets of the classes for a label and the smoothing e: 1 - e + e/C for the label, e/C for the
/// others, each times the weight of its class.
struct SmoothedTarget {
  double smoothing, share;
  std::int64_t classes;
  const double* weights;  ///< weights of the classes, then their sum; null for weights of 1

  SmoothedTarget(double e, std::int64_t all, const double* of_classes)
      : smoothing(e), share(e / static_cast<double>(all)), classes(all), weights(of_classes) {}
  /// Returns the weight of a class, or 1 for an invalid class.
  FQ_HD double weight(std::int64_t c) const {
    return weights == nullptr || c < 0 || c >= classes ? 1.0 : weights[c];
  }
  FQ_HD double target(std::int64_t c, std::int64_t label) const {
    return (c == label ? share + (1.0 - smoothing) : share) * weight(c);
  }
  /// Returns the sum of the targets of all classes.
  FQ_HD double targets(std::int64_t label) const {
    return weights == nullptr ? 1.0 : (1.0 - smoothing) * weight(label) + share * weights[classes];
  }
  /// Returns d loss / d logit, times `factor`. `all` is the sum of the row's targets.
  template <class T>
  FQ_HD T gradient(T log_p, T all, std::int64_t c, std::int64_t label, T factor) const {
    const T own = static_cast<T>(share) + (c == label ? static_cast<T>(1.0 - smoothing) : T{0});
    return factor * (std::exp(log_p) * all - own * static_cast<T>(weight(c)));
  }
};

}  // namespace fq::detail
