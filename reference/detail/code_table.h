#pragma once

/// Decoding of codes of one byte by a table.

#include <array>

#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/reference/detail/float_blocks.h"

namespace fq::detail {

/// The value of each byte.
using CodeTable = std::array<float, 256>;

template <class F>
CodeTable code_table(F&& decode_byte) {
  CodeTable values{};
  for (std::size_t code = 0; code < values.size(); ++code)
    values[code] = decode_byte(static_cast<std::uint8_t>(code));
  return values;
}
inline CodeTable minifloat_table(const Minifloat& grid) {
  return code_table([&](std::uint8_t code) { return grid.decode(code); });
}

/// The values of a tensor of bytes, any layout, rounded to `dtype`; on `meta` only the shape.
inline Tensor decoded(const Tensor& codes, const CodeTable& values, DType dtype) {
  Tensor out = Tensor::empty(codes.shape(), dtype, codes.device(), codes.layout());
  if (codes.device().is_meta()) return out;
  const auto* in = static_cast<const std::uint8_t*>(codes.raw());
  visit_dtype(dtype, "decode", [&]<class T>(T) {
    auto* to = static_cast<T*>(out.mutable_raw());
    for (std::int64_t i = 0; i < codes.numel(); ++i) to[i] = static_cast<T>(values[in[i]]);
  });
  return out;
}

}  // namespace fq::detail
