#pragma once

/// Sizes and arguments of attention, rows of scores, and rotary pairs. For host and device.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/numerics/number_formats.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

struct AttentionShape {
  std::int64_t samples, heads, kv_heads, queries, keys, width, value_width;
  [[nodiscard]] Shape q() const { return {samples, heads, queries, width}; }
  [[nodiscard]] Shape k() const { return {samples, kv_heads, keys, width}; }
  [[nodiscard]] Shape v() const { return {samples, kv_heads, keys, value_width}; }
  [[nodiscard]] Shape y() const { return {samples, heads, queries, value_width}; }
  /// Returns whether the kernels `attention` and `attention_backward` support these sizes.
  [[nodiscard]] bool fits_tiles() const {
    constexpr std::int64_t widest = 256, longest = std::int64_t{1} << 30;
    return numel(q()) > 0 && numel(v()) > 0 && width <= widest && value_width <= widest &&
           queries <= longest && keys <= longest;
  }
};

/// Rows of scores [.., keys], each for one query. Rows count (sample, head, query) from `first`.
struct AttentionRows {
  std::int64_t heads, queries, keys, first;
  bool causal;
  double scale;
  /// Strides of the mask along (sample, head, query, key); 0 along a broadcast axis.
  std::array<std::int64_t, 4> mask_strides{};

  /// Returns the number of keys that row r sees. With `causal` the last query sees all keys, and each query
  /// before it one less.
  [[nodiscard]] FQ_HD std::int64_t visible(std::int64_t r) const {
    return causal ? visible_keys((first + r) % queries) : keys;
  }
  /// Returns the number of keys that a query sees.
  [[nodiscard]] FQ_HD std::int64_t visible_keys(std::int64_t query) const {
    const std::int64_t seen = causal ? keys - queries + 1 + query : keys;
    return seen < 0 ? 0 : seen;
  }
  /// Returns the offset of row r in the mask.
  [[nodiscard]] FQ_HD std::int64_t mask_offset(std::int64_t r) const {
    const std::int64_t line = (first + r) / queries;
    return line / heads * mask_strides[0] + line % heads * mask_strides[1] +
           (first + r) % queries * mask_strides[2];
  }
};

/// Matrices of heads: element [n, h, r, c] is at n * sample + h * head + r * row + c of the tensor.
struct HeadRows {
  Tensor tensor;
  std::int64_t sample, head, row;
};

/// Dropout of attention weights, whose elements [samples, heads, queries, keys] are counted in this order.
struct AttentionDropout {
  DropoutBlocks blocks;
  double scale;  ///< factor of the kept weights
};

struct AttentionInputs {
  AttentionShape shape;
  AttentionRows rows;
  HeadRows q, k, v;
  Tensor mask;  ///< may be undefined
  std::optional<AttentionDropout> dropout = {};
};

/// Returns the input of the softmax for a score. `mask` may be null.
template <class T>
FQ_HD T attention_score(T score, T scale, const T* mask) {
  return mask == nullptr ? score * scale : score * scale + *mask;
}
/// Returns the gradient of a score for p = softmax, where `sum` is the sum of dp * p over the row.
template <class T>
FQ_HD T attention_gradient(T dp, T p, T sum, T scale) {
  return p * (dp - sum) * scale;
}

/// Pairs of elements to rotate, in rows of one or several heads. Elements after the pairs are unchanged.
struct Rotation {
  std::int64_t rows, width;  ///< positions, and elements per row
  std::int64_t pairs;        ///< number of rotated pairs of a head
  bool interleaved;          ///< whether neighbours form a pair; else elements half of the rotated size apart
  bool back;                 ///< whether to rotate by the negative angles
  std::int64_t heads = 1;    ///< heads of 2 * pairs elements, side by side

  /// Returns the positions of a pair in its head.
  [[nodiscard]] FQ_HD std::int64_t left(std::int64_t pair) const { return interleaved ? 2 * pair : pair; }
  [[nodiscard]] FQ_HD std::int64_t right(std::int64_t pair) const {
    return interleaved ? 2 * pair + 1 : pair + pairs;
  }
};

template <class T>
struct Rotated {
  T left, right;
};
template <class T>
FQ_HD Rotated<T> rotated(T left, T right, T cosine, T sine) {
  return {left * cosine - right * sine, right * cosine + left * sine};
}

}  // namespace fq::detail
