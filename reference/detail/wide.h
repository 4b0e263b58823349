#pragma once

/// Numbers that make the formulas of `formulas-inl.h` compute in double.

#include <cmath>

#include "fakequant/core/numerics/detail/formulas.h"

namespace fq::detail {

struct Wide {
  double value;
};

inline Wide add_(Wide a, Wide b) { return {a.value + b.value}; }
inline Wide sub_(Wide a, Wide b) { return {a.value - b.value}; }
inline Wide mul_(Wide a, Wide b) { return {a.value * b.value}; }
inline Wide rint_(Wide a) { return {std::rint(a.value)}; }
inline Wide min_(Wide a, Wide b) { return a.value < b.value ? a : b; }
inline Wide max_(Wide a, Wide b) { return a.value > b.value ? a : b; }
inline bool less_equal_(Wide a, Wide b) { return a.value <= b.value; }
using scalar::and_;

}  // namespace fq::detail
