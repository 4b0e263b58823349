#pragma once

/// The body of every convolution: floats, minifloat codes or integer codes, forward and backward;
/// not a public header.

#include <string_view>

#include "fakequant/core/cpu/engine.h"
#include "fakequant/core/tape.h"

namespace fq::detail {

/// A checked convolution, or its transpose in x: then the input is `shape`'s y and the output its x.
struct Convolution {
  std::string_view name;  ///< of the operator, a literal
  cpu::ConvShape shape;
  bool transposed = false;
  int rank = 4;  ///< of x and y; 3 for one-dimensional ones
  Attributes attributes;

  [[nodiscard]] std::int64_t channels() const { return transposed ? shape.c : shape.o; }
  /// Products in one output.
  [[nodiscard]] std::int64_t terms() const {
    return (transposed ? shape.o : shape.c) / shape.groups * shape.kh * shape.kw;
  }
  [[nodiscard]] int weight_axis() const { return transposed ? 1 : 0; }

  /// y, recorded and reported under `name`.
  [[nodiscard]] Variable apply(const Variable& x, const Variable& w, const Variable& bias) const;
};

}  // namespace fq::detail
