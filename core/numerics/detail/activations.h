#pragma once

/// Activations and their slopes. `slope` is a function of the input x, or of the output y if `of_output` is
/// set. In this case backward does not need the input.

#include <cmath>
#include <numbers>
#include <type_traits>
#include <variant>

#include "fakequant/core/numerics/detail/elementary.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"

namespace fq::detail {

struct Relu {
  static constexpr bool of_output = true;
  template <class T>
  FQ_HD T value(T x) const {
    return x < T{0} ? T{0} : x;
  }
  template <class T>
  FQ_HD T slope(T y) const {
    return y > T{0} ? T{1} : T{0};
  }
};

struct Relu6 {
  static constexpr bool of_output = true;
  template <class T>
  FQ_HD T value(T x) const {
    return x < T{0} ? T{0} : (x > T{6} ? T{6} : x);
  }
  template <class T>
  FQ_HD T slope(T y) const {
    return y > T{0} && y < T{6} ? T{1} : T{0};
  }
};

struct Clip {
  static constexpr bool of_output = false;
  double low, high;
  template <class T>
  FQ_HD T value(T x) const {
    const T lo = static_cast<T>(low), hi = static_cast<T>(high);
    return x < lo ? lo : (x > hi ? hi : x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return x > static_cast<T>(low) && x < static_cast<T>(high) ? T{1} : T{0};
  }
};

struct LeakyRelu {
  static constexpr bool of_output = true;
  double negative;
  template <class T>
  FQ_HD T value(T x) const {
    return x > T{0} ? x : static_cast<T>(negative) * x;
  }
  template <class T>
  FQ_HD T slope(T y) const {
    return y > T{0} ? T{1} : static_cast<T>(negative);
  }
};

struct Sigmoid {
  static constexpr bool of_output = true;
  template <class T>
  FQ_HD T value(T x) const {
    return T{1} / (T{1} + std::exp(-x));
  }
  template <class T>
  FQ_HD T slope(T y) const {
    return y * (T{1} - y);
  }
};

struct Tanh {
  static constexpr bool of_output = true;
  template <class T>
  FQ_HD T value(T x) const {
    return std::tanh(x);
  }
  template <class T>
  FQ_HD T slope(T y) const {
    return T{1} - y * y;
  }
};

struct HardSigmoid {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return Relu6{}.value(x + T{3}) / T{6};
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return x > T{-3} && x < T{3} ? T{1} / T{6} : T{0};
  }
};

struct HardSwish {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return x * HardSigmoid{}.value(x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return x <= T{-3} ? T{0} : (x >= T{3} ? T{1} : x / T{3} + T{1} / T{2});
  }
};

struct Silu {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    if constexpr (std::is_same_v<T, float>) return scalar::silu_value(x);
    return x * Sigmoid{}.value(x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    if constexpr (std::is_same_v<T, float>) return scalar::silu_slope(x);
    const T s = Sigmoid{}.value(x);
    return s * (T{1} + x * (T{1} - s));
  }
};

struct Gelu {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T phi(T x) const {
    return (T{1} + std::erf(x / std::numbers::sqrt2_v<T>)) / T{2};
  }
  template <class T>
  FQ_HD T value(T x) const {
    if constexpr (std::is_same_v<T, float>) return scalar::gelu_value(x);
    return x * phi(x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    if constexpr (std::is_same_v<T, float>) return scalar::gelu_slope(x);
    const T density = std::exp(-x * x / T{2}) * std::numbers::inv_sqrtpi_v<T> / std::numbers::sqrt2_v<T>;
    return phi(x) + x * density;
  }
};

struct GeluTanh {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T inner(T x) const {
    const T scale = std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
    return std::tanh(scale * (x + static_cast<T>(0.044715) * x * x * x));
  }
  template <class T>
  FQ_HD T value(T x) const {
    return x / T{2} * (T{1} + inner(x));
  }
  template <class T>
  FQ_HD T slope(T x) const {
    const T t = inner(x), scale = std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;
    const T inside = scale * (T{1} + T{3} * static_cast<T>(0.044715) * x * x);
    return (T{1} + t) / T{2} + x / T{2} * (T{1} - t * t) * inside;
  }
};

/// GELU with ggml's table of values. The slope is the slope of the exact function.
struct GgmlGelu {
  static constexpr bool of_output = false;
  bool by_tanh;
  template <class T>
  FQ_HD T value(T x) const {
    return static_cast<T>(ggml_gelu(static_cast<float>(x)));
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return by_tanh ? GeluTanh{}.slope(x) : Gelu{}.slope(x);
  }
};

/// ELU, CELU and SELU: gain * x above 0, gain * alpha * (exp(x / width) - 1) below.
struct Elu {
  static constexpr bool of_output = false;
  double alpha, width, gain;
  template <class T>
  FQ_HD T value(T x) const {
    const T by = static_cast<T>(gain);
    return x > T{0} ? by * x : by * static_cast<T>(alpha) * std::expm1(x / static_cast<T>(width));
  }
  template <class T>
  FQ_HD T slope(T x) const {
    const T by = static_cast<T>(gain);
    return x > T{0} ? by : by * static_cast<T>(alpha / width) * std::exp(x / static_cast<T>(width));
  }
};

/// log(1 + exp(beta * x)) / beta, or x if beta * x is above the threshold.
struct Softplus {
  static constexpr bool of_output = false;
  double beta = 1.0, threshold = 20.0;
  template <class T>
  FQ_HD T value(T x) const {
    const T by = static_cast<T>(beta), v = by * x;
    return v > static_cast<T>(threshold) ? x : std::log1p(std::exp(v)) / by;
  }
  template <class T>
  FQ_HD T slope(T x) const {
    const T v = static_cast<T>(beta) * x;
    return v > static_cast<T>(threshold) ? T{1} : Sigmoid{}.value(v);
  }
};

struct Mish {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return x * std::tanh(Softplus{}.value(x));
  }
  template <class T>
  FQ_HD T slope(T x) const {
    const T t = std::tanh(Softplus{}.value(x));
    return t + x * (T{1} - t * t) * Sigmoid{}.value(x);
  }
};

struct LogSigmoid {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return (x < T{0} ? x : T{0}) - std::log1p(std::exp(-std::abs(x)));
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return Sigmoid{}.value(-x);
  }
};

struct Softsign {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return x / (T{1} + std::abs(x));
  }
  template <class T>
  FQ_HD T slope(T x) const {
    const T d = T{1} + std::abs(x);
    return T{1} / (d * d);
  }
};

/// Whether GPUs compute F together with the product before it and the rounding of its reader.
template <class F>
inline constexpr bool follows_products = std::is_same_v<F, Gelu> || std::is_same_v<F, GeluTanh> ||
                                         std::is_same_v<F, Silu> || std::is_same_v<F, HardSwish>;

/// One of the activations or an elementary function. A class instead of an alias, so that kernel
/// declarations need not list the alternatives.
struct Activation {
  std::variant<Relu, Relu6, Clip, LeakyRelu, Sigmoid, Tanh, HardSigmoid, HardSwish, Silu, Gelu, GeluTanh, Elu,
               Softplus, Mish, LogSigmoid, Softsign, Exp, Log, Sqrt, Reciprocal, Abs, Erf, Sin, Cos, PowerOf,
               Shift, Step, RoundTo, GgmlGelu>
      f;
};

/// Whether the kernels of products of codes multiply gradients by the slope of f. Networks have these
/// functions before a product.
template <class F>
inline constexpr bool slope_stays_pending = std::is_same_v<F, Relu> || follows_products<F>;

}  // namespace fq::detail
