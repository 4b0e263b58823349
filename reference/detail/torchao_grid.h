#pragma once

/// The parameters of torchao's affine functions, checked and unpacked by block.

#include "fakequant/reference/detail/affine.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {

/// Codes as f32: what clamps, and the middle that a floating zero point belongs to.
struct Codes {
  float lower, upper, middle;
  /// Throws ArgumentError for a range that is not within the type.
  static Codes of(IntegerType type, const CodeRange& range, const char* function);
};

struct Parameters {
  Shape block_size;
  Tensor scale, zero_point;  ///< the zero point undefined where there is none
  ZeroPointDomain domain;
};

struct Grid {
  Shape block;
  std::vector<detail::AffineRow> rows;
  Codes codes;
  bool floating;
  DType steps;  ///< the type that rounds the way to the codes
};

/// The grid of a tensor with that shape and float type. Throws ArgumentError for parameters that do not fit;
/// with `strict` also for a missing zero point.
[[nodiscard]] Grid make_grid(const Shape& shape, DType dtype, const Parameters& p, const Codes& codes,
                             bool strict, const char* function);

/// f32, f16 or bf16, else ArgumentError.
void check_float(DType dtype, const char* what, const char* function);

}  // namespace fq::torchao
