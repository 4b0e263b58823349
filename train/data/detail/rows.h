#pragma once

/// Rows of tensors.

#include <cstdint>
#include <cstring>
#include <span>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Returns the selected rows of a tensor [N, ..], row-major on the CPU. Rows must be in range.
[[nodiscard]] inline Tensor select_rows(const Tensor& from, std::span<const std::int64_t> rows) {
  Shape shape = from.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor out = Tensor::empty(shape, from.dtype());
  const auto bytes = static_cast<std::size_t>(from.nbytes() / from.dim(0));
  auto* to = static_cast<char*>(out.mutable_raw());
  for (const auto row : rows) {
    std::memcpy(to, static_cast<const char*>(from.raw()) + static_cast<std::size_t>(row) * bytes, bytes);
    to += bytes;
  }
  return out;
}

}  // namespace fq::detail
