#pragma once

/// Arithmetic on elements, and what joins them.

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
/// d pow(a, b) / d a; 0 where b is 0.
struct PowerSlope {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return b == T{0} ? T{0} : b * std::pow(a, b - T{1});
  }
};
/// d pow(a, b) / d b; 0 where a is 0 and the power is a number.
struct PowerLog {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a == T{0} && b >= T{0} ? T{0} : std::pow(a, b) * std::log(a);
  }
};

/// NaN wins.
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
/// What a gets of the gradient of the smaller one: half where they are equal. Of the larger one with a and b
/// exchanged.
struct LessShare {
  template <class T>
  FQ_HD T operator()(T a, T b) const {
    return a < b ? T{1} : (a == b ? T{1} / T{2} : T{0});
  }
};

/// 1 where it holds, else 0.
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

/// a where b is not 0, else 0; and the other way round.
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

/// How the elements of a reduction are joined: begun with `first`, in double precision.
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
