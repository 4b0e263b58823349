#pragma once

/// The formulas of the optimizers other than Adam and stochastic gradient descent, each written once, for
/// host and device. They update one element with gradient g (scaled, with weight decay added) and its state.

#include <cmath>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// The rules have the names of ops::UpdateRule.
template <class T>
struct UpdateElement {
  T p, g, state[3];
};

template <class T>
struct DampenedSgd {  // state: momentum
  static constexpr int states = 1;
  T rate, momentum, rest, nesterov;
  FQ_HD void operator()(UpdateElement<T>& e) const {
    e.state[0] = e.state[0] * momentum + e.g * rest;
    e.p -= rate * (nesterov != T(0) ? e.g + e.state[0] * momentum : e.state[0]);
  }
};

template <class T>
struct RmsProp {  // state: square, mean, momentum
  static constexpr int states = 3;
  T rate, alpha, rest, eps, momentum, centered;
  FQ_HD void operator()(UpdateElement<T>& e) const {
    e.state[0] = e.state[0] * alpha + e.g * rest * e.g;
    T square = e.state[0];
    if (centered != T(0)) {
      e.state[1] = e.state[1] + (e.g - e.state[1]) * rest;
      square -= e.state[1] * e.state[1];
    }
    const T step = e.g / (std::sqrt(square) + eps);
    e.state[2] = e.state[2] * momentum + step;
    e.p -= rate * e.state[2];
  }
};

template <class T>
struct Adagrad {  // state: sum
  static constexpr int states = 1;
  T rate, eps;
  FQ_HD void operator()(UpdateElement<T>& e) const {
    e.state[0] += e.g * e.g;
    e.p -= rate * e.g / (std::sqrt(e.state[0]) + eps);
  }
};

/// The moving averages of Adam. State: mean, square.
template <class T>
struct Moments {
  T beta1, rest1, beta2, rest2;
  FQ_HD void operator()(UpdateElement<T>& e) const {
    e.state[0] = e.state[0] * beta1 + e.g * rest1;
    e.state[1] = e.state[1] * beta2 + e.g * rest2 * e.g;
  }
};

template <class T>
struct NAdam {  // state: mean, square
  static constexpr int states = 2;
  Moments<T> moments;
  T of_gradient, of_mean, root, eps;
  FQ_HD void operator()(UpdateElement<T>& e) const {
    moments(e);
    const T divisor = std::sqrt(e.state[1]) * root + eps;
    e.p -= of_gradient * e.g / divisor;
    e.p -= of_mean * e.state[0] / divisor;
  }
};

template <class T>
struct AmsGrad {  // state: mean, square, largest
  static constexpr int states = 3;
  Moments<T> moments;
  T rate, root, eps;
  FQ_HD void operator()(UpdateElement<T>& e) const {
    moments(e);
    e.state[2] = e.state[2] < e.state[1] ? e.state[1] : e.state[2];
    e.p -= rate * e.state[0] / (std::sqrt(e.state[2]) * root + eps);
  }
};

template <class T>
struct Lion {  // state: mean
  static constexpr int states = 1;
  T rate, beta1, rest1, beta2, rest2;
  FQ_HD void operator()(UpdateElement<T>& e) const {
    const T direction = e.state[0] * beta1 + e.g * rest1;
    e.p -= direction > T(0) ? rate : direction < T(0) ? -rate : T(0);
    e.state[0] = e.state[0] * beta2 + e.g * rest2;
  }
};

template <class T>
struct LambDirection {  // state: mean, square, direction; the parameter stays
  static constexpr int states = 3;
  Moments<T> moments;
  T of_mean, root, eps, decay;
  FQ_HD void operator()(UpdateElement<T>& e) const {
    moments(e);
    e.state[2] = of_mean * e.state[0] / (std::sqrt(e.state[1]) * root + eps) + decay * e.p;
  }
};

template <class T>
struct Descent {  // state: direction
  static constexpr int states = 1;
  T rate;
  FQ_HD void operator()(UpdateElement<T>& e) const { e.p -= rate * e.state[0]; }
};

}  // namespace fq::detail
