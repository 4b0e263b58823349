#pragma once

/// Arithmetic on elements.

#include <variant>

#include "fakequant/core/numerics/host_device.h"

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

using Arithmetic = std::variant<Add, Subtract, Multiply>;

template <class T>
struct Scaled {
  T by;
  FQ_HD T operator()(T v) const { return v * by; }
};

}  // namespace fq::detail
