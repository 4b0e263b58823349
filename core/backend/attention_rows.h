#pragma once

/// What rows of attention scores may look at, for host and device.

#include <array>
#include <cstdint>
#include <limits>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// Rows of scores [.., keys] of one query each: of (sample, head, query), counted on from `first`.
struct AttentionRows {
  std::int64_t heads, queries, keys, first;
  bool causal;
  double scale;
  /// Of the mask, along (sample, head, query, key); 0 where one element is that of all.
  std::array<std::int64_t, 4> mask_strides{};

  /// Keys that row r sees: with `causal` the last query sees all, each before it one less.
  [[nodiscard]] FQ_HD std::int64_t visible(std::int64_t r) const {
    if (!causal) return keys;
    const std::int64_t seen = keys - queries + 1 + (first + r) % queries;
    return seen < 0 ? 0 : seen;
  }
  /// Where the mask of row r begins.
  [[nodiscard]] FQ_HD std::int64_t mask_at(std::int64_t r) const {
    const std::int64_t line = (first + r) / queries;
    return line / heads * mask_strides[0] + line % heads * mask_strides[1] +
           (first + r) % queries * mask_strides[2];
  }
};

/// A score as it goes into the softmax; `mask` may be null.
template <class T>
FQ_HD T attention_score(T score, T scale, const T* mask) {
  return mask == nullptr ? score * scale : score * scale + *mask;
}
/// The gradient of a score, of p = softmax; `sum` is that of dp * p over the row.
template <class T>
FQ_HD T attention_gradient(T dp, T p, T sum, T scale) {
  return p * (dp - sum) * scale;
}

/// Which elements of heads are rotated together, and by what.
struct Rotation {
  std::int64_t rows, width;  ///< of positions, of a head
  std::int64_t pairs;        ///< that are rotated; what is behind them stays
  bool interleaved;          ///< neighbours are a pair, else elements half of the rotated ones apart
  bool back;                 ///< by the angles' negatives

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
