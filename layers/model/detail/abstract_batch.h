#pragma once

/// The batch with which models run on `meta` where its size is not known.

#include <algorithm>
#include <cstdint>
#include <string>

#include "fakequant/core/blocks/shape.h"

namespace fq::detail {

/// A prime that no layer has for a size, so that it is known again in whatever is computed from shapes: those
/// are plain integers, in operators and in modules of users, and carry no name of an axis. The ONNX exporter,
/// which gets models whose sizes nobody has checked, compares the shapes of two batches instead.
inline constexpr std::int64_t kAbstractBatch = 1000003;

/// The axis along which samples lie, whose size is a multiple of the batch; -1 where there is none.
[[nodiscard]] inline int batch_axis(const Shape& shape) {
  const auto found =
      std::ranges::find_if(shape, [](auto size) { return size > 0 && size % kAbstractBatch == 0; });
  return found == shape.end() ? -1 : static_cast<int>(found - shape.begin());
}

/// Writes the batch as N and its multiples as 32*N in a message. Digits within names and decimal numbers
/// stay unchanged.
[[nodiscard]] std::string with_readable_batch(const std::string& message);

}  // namespace fq::detail
