#pragma once

/// Arithmetic on elements, and reductions.

#include <cmath>
#include <limits>
#include <variant>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

struct Add {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a + b;
  }
};

struct Subtract {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a - b;
  }
};

struct Multiply {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a * b;
  }
};

struct Divide {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a / b;
  }
};

struct Power {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return std::pow(a, b);
  }
};
/// d pow(a, b) / d a; 0 if b is 0.
struct PowerSlope {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return b == T{0} ? T{0} : b * std::pow(a, b - T{1});
  }
};
/// d pow(a, b) / d b; 0 if a is 0 and the power is a number.
struct PowerLog {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a == T{0} && b >= T{0} ? T{0} : std::pow(a, b) * std::log(a);
  }
};

/// The smaller number; NaN if one is NaN.
struct Minimum {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};
struct Maximum {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
/// Share of a in the gradient of the minimum: half if both are equal. For the maximum, exchange a and b.
struct LessShare {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a < b ? T{1} : (a == b ? T{1} / T{2} : T{0});
  }
};

/// 1 if the comparison holds, else 0.
struct Less {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a < b ? T{1} : T{0};
  }
};
struct LessEqual {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a <= b ? T{1} : T{0};
  }
};
struct Equal {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a == b ? T{1} : T{0};
  }
};
struct NotEqual {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a == b ? T{0} : T{1};
  }
};

/// Returns a if b is not 0, else 0. KeepUnless is the opposite.
struct KeepWhere {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return b == T{0} ? T{0} : a;
  }
};
struct KeepUnless {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return b == T{0} ? a : T{0};
  }
};

using BinaryFunction =
    std::variant<Add, Subtract, Multiply, Divide, Power, PowerSlope, PowerLog, Minimum, Maximum, LessShare,
                 Less, LessEqual, Equal, NotEqual, KeepWhere, KeepUnless>;

template <class T>
struct Scaled {
  T by;
  FQ_HD T operator()(T v) const { return v * by; }
};

/// Reductions. Each starts with `first` and accumulates in double precision.
struct Total {
  static constexpr double first = 0.0;
  FQ_HD void join(double& sum, double v) const { sum += v; }
};
struct Largest {
  static constexpr double first = -std::numeric_limits<double>::infinity();
  FQ_HD void join(double& most, double v) const { most = Maximum{}(v, most); }
};
struct Smallest {
  static constexpr double first = std::numeric_limits<double>::infinity();
  FQ_HD void join(double& least, double v) const { least = Minimum{}(v, least); }
};

using Reduction = std::variant<Total, Largest, Smallest>;

}  // namespace fq::detail
