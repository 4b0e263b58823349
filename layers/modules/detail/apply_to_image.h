#pragma once

/// Runs image operators on sequences [N, C, L].

#include "fakequant/core/ops/shape.h"

namespace fq::detail {

/// Applies f to an image [N, C, H, W]. A sequence becomes an image of height 1, and the result a sequence
/// again.
template <class F>
[[nodiscard]] Variable apply_to_image(const Variable& x, F f) {
  if (!x.defined() || x.rank() != 3) return f(x);
  const Variable y = f(ops::reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2)}));
  return ops::reshape(y, {y.dim(0), y.dim(1), y.dim(3)});
}

}  // namespace fq::detail
