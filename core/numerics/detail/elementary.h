#pragma once

/// The elementary functions of one number and their slopes, as in activations.h.

#include <cmath>
#include <numbers>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

struct Exp {
  static constexpr bool of_output = true;
  template <class T>
  FQ_HD T value(T x) const {
    return std::exp(x);
  }
  template <class T>
  FQ_HD T slope(T y) const {
    return y;
  }
};

struct Log {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return std::log(x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return T{1} / x;
  }
};

struct Sqrt {
  static constexpr bool of_output = true;
  template <class T>
  FQ_HD T value(T x) const {
    return std::sqrt(x);
  }
  template <class T>
  FQ_HD T slope(T y) const {
    return T{1} / (T{2} * y);
  }
};

struct Reciprocal {
  static constexpr bool of_output = true;
  template <class T>
  FQ_HD T value(T x) const {
    return T{1} / x;
  }
  template <class T>
  FQ_HD T slope(T y) const {
    return -y * y;
  }
};

struct Abs {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return std::abs(x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return x > T{0} ? T{1} : (x < T{0} ? T{-1} : T{0});
  }
};

struct Erf {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return std::erf(x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return T{2} * std::numbers::inv_sqrtpi_v<T> * std::exp(-x * x);
  }
};

struct Sin {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return std::sin(x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return std::cos(x);
  }
};

struct Cos {
  static constexpr bool of_output = false;
  template <class T>
  FQ_HD T value(T x) const {
    return std::cos(x);
  }
  template <class T>
  FQ_HD T slope(T x) const {
    return -std::sin(x);
  }
};

/// x to a constant power. A square is computed as a product, because std::pow may differ from it.
struct PowerOf {
  static constexpr bool of_output = false;
  double exponent;
  template <class T>
  FQ_HD T value(T x) const {
    return exponent == 2.0 ? x * x : std::pow(x, static_cast<T>(exponent));
  }
  template <class T>
  FQ_HD T slope(T x) const {
    if (exponent == 0.0) return T{0};
    return static_cast<T>(exponent) * (exponent == 2.0 ? x : std::pow(x, static_cast<T>(exponent - 1.0)));
  }
};

struct Shift {
  static constexpr bool of_output = false;
  double by;
  template <class T>
  FQ_HD T value(T x) const {
    return x + static_cast<T>(by);
  }
  template <class T>
  FQ_HD T slope(T) const {
    return T{1};
  }
};

/// Step functions: the slope is 0 everywhere.
struct Step {
  enum class Kind { floor, ceil, round, sign, trunc };
  static constexpr bool of_output = false;
  Kind kind;
  template <class T>
  FQ_HD T value(T x) const {
    if (kind == Kind::floor) return std::floor(x);
    if (kind == Kind::ceil) return std::ceil(x);
    if (kind == Kind::round) return std::rint(x);
    if (kind == Kind::trunc) return std::trunc(x);
    return x > T{0} ? T{1} : (x < T{0} ? T{-1} : x);
  }
  template <class T>
  FQ_HD T slope(T) const {
    return T{0};
  }
};

/// Rounds to a 16-bit float type. The gradient passes unchanged, as in PyTorch's conversions.
struct RoundTo {
  static constexpr bool of_output = false;
  bool bf16;
  template <class T>
  FQ_HD T value(T x) const {
    const auto wide = static_cast<float>(x);
    return static_cast<T>(bf16 ? static_cast<float>(bfloat16(wide)) : static_cast<float>(float16(wide)));
  }
  template <class T>
  FQ_HD T slope(T) const {
    return T{1};
  }
};

}  // namespace fq::detail
