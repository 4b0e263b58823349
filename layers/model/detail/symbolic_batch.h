#pragma once

/// The symbol N: the batch size in shapes of a model that runs on `meta` before the batch is known.
///
/// Operators and user modules compute sizes as plain integers, which carry no names. N is therefore a prime
/// that no layer has as a size. A size that depends on the batch is a multiple of N. Only these two files use
/// the number. The ONNX exporter runs models with unchecked sizes: it compares the shapes of two batches
/// instead.

#include <algorithm>
#include <cstdint>
#include <string>

#include "fakequant/core/blocks/shape.h"

namespace fq::detail {

/// Value of N in a shape.
inline constexpr std::int64_t kSymbolicBatch = 1000003;

/// Returns [N, sample..].
[[nodiscard]] Shape add_symbolic_batch(const Shape& sample);

/// Whether a size depends on the batch.
[[nodiscard]] constexpr bool has_symbolic_batch(std::int64_t size) {
  return size > 0 && size % kSymbolicBatch == 0;
}

/// Returns the axis of the samples, whose size is a multiple of N. Returns -1 if there is none.
[[nodiscard]] inline int batch_axis(const Shape& shape) {
  const auto found = std::ranges::find_if(shape, has_symbolic_batch);
  return found == shape.end() ? -1 : static_cast<int>(found - shape.begin());
}

/// Returns the elements of one sample of a value with a batch axis.
[[nodiscard]] inline std::int64_t sample_elements(const Shape& shape) {
  return numel(shape) / kSymbolicBatch;
}

/// Returns a message with N and its multiples as "N" and "32*N". Digits within names and decimal numbers stay
/// unchanged.
[[nodiscard]] std::string show_batch_symbol(const std::string& message);
/// Returns a shape as text: "[N, 8, 32*N]".
[[nodiscard]] std::string batch_text(const Shape& shape);

}  // namespace fq::detail
