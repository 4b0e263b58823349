#pragma once

/// Loops of one tensor against a smaller one.

#include <algorithm>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/detail/check.h"

namespace fq::detail {

/// Throws ArgumentError unless `other` broadcasts against a tensor of shape `x` by NumPy's rule.
inline void check_broadcast(const Shape& x, const Shape& other, std::string_view function) {
  FQ_CHECK(other.size() <= x.size(), function, "{} has more axes than the input {}", to_string(other),
           to_string(x));
  for (std::size_t k = 0, a = x.size() - other.size(); k < other.size(); ++k, ++a)
    FQ_CHECK(other[k] == 1 || other[k] == x[a], function,
             "{} does not broadcast to the input {}: axis {} must have 1 or {}", to_string(other),
             to_string(x), a, x[a]);
}

/// Calls f(begin, end, j): the row-major elements [begin, end) of a tensor of shape `x` meet element j of one
/// of shape `other`, which broadcasts against it by NumPy's rule. Throws ArgumentError when it does not.
template <class F>
void for_broadcast(const Shape& x, const Shape& other, std::string_view function, F&& f) {
  check_broadcast(x, other, function);
  Shape stride(x.size()), index(x.size());
  std::int64_t step = 1;
  for (std::size_t a = x.size(), k = other.size(); k-- > 0;) {
    --a;
    stride[a] = other[k] == 1 ? 0 : step;
    step *= other[k];
  }
  std::size_t outer = x.size();
  std::int64_t inner = 1;
  while (outer > 0 && stride[outer - 1] == 0) inner *= x[--outer];
  const std::int64_t count = numel(x);
  for (std::int64_t i = 0, j = 0; i < count; i += inner) {
    f(i, i + inner, j);
    for (std::size_t a = outer; a-- > 0;) {
      j += stride[a];
      if (++index[a] < x[a]) break;
      j -= stride[a] * x[a];
      index[a] = 0;
    }
  }
}

}  // namespace fq::detail
