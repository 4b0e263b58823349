#pragma once

/// Parts of the attention kernels: strides of heads, masks, scores, and the scale of weights.

#include <limits>

#include "fakequant/core/backend/attention_rows.h"
#include "fakequant/core/backend/cuda/loops/half_tiles.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {

/// HeadRows of a kernel; T is float or const float.
template <class T>
struct HeadData {
  T* data;
  std::int64_t sample, head, row;

  [[nodiscard]] FQ_HD T* at(std::int64_t n, std::int64_t h, std::int64_t r) const {
    return data + n * sample + h * head + r * row;
  }
  /// Returns the rows of a head from `first` to `end`.
  [[nodiscard]] FQ_HD FloatRows rows(std::int64_t n, std::int64_t h, std::int64_t first, std::int64_t end,
                                     std::int64_t width) const {
    return FloatRows(at(n, h, first), row, end - first, width);
  }
};

inline HeadData<const float> head_data(const fq::detail::HeadRows& x) {
  return {device_data<float>(x.tensor), x.sample, x.head, x.row};
}
inline HeadData<float> mutable_head_data(fq::detail::HeadRows& x) {
  return {mutable_device_data<float>(x.tensor), x.sample, x.head, x.row};
}

/// Part of a row of scores, or of a column of them.
struct ScoreRow {
  int begin, end;     ///< the visible ones
  const float* mask;  ///< of the first, or null
  std::int64_t step;  ///< distance between elements of the mask

  [[nodiscard]] FQ_HD bool sees(int column) const { return begin <= column && column < end; }
};

/// Turns half a fragment of sums of products into inputs of the softmax: -infinity for a key that a query
/// does not see. `factor` includes the scale, and the tile has the factors of the columns.
template <class Tile, int quads>
FQ_HD void make_scores(const ScoreRow& row, float factor, const Tile& tile, int lane, int half,
                       Quad (&sums)[quads]) {
  FQ_UNROLL
  for (int n = 0; n < quads; ++n)
    for (int i = 2 * half; i < 2 * half + 2; ++i)
      sums[n][i] = fq::detail::attention_score<float>(
          sums[n][i], factor * tile.row_factor(quad_column(lane, n, i)), nullptr);
  if (row.mask != nullptr) {
    FQ_UNROLL
    for (int n = 0; n < quads; ++n)
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        const int column = quad_column(lane, n, i);
        if (row.sees(column))
          sums[n][i] = fq::detail::attention_score(sums[n][i], 1.0f, row.mask + column * row.step);
      }
  }
  FQ_UNROLL
  for (int n = 0; n < quads; ++n)
    for (int i = 2 * half; i < 2 * half + 2; ++i)
      if (!row.sees(quad_column(lane, n, i))) sums[n][i] = -std::numeric_limits<float>::infinity();
}

/// A bit of each weight of a tile: 1 if dropout keeps the weight.
template <int queries, int keys>
struct KeepTile {
  static constexpr int bytes = keys / 8;
  std::uint8_t bits[queries][bytes];

  /// Makes the bits. `first` is the index of the first weight of the tile, `row` the distance between
  /// queries.
  template <int threads>
  FQ_HD void fill(const fq::detail::DropoutBlocks& of, std::int64_t first, std::int64_t row, int thread) {
    for (int i = thread; i < queries * bytes; i += threads) {
      const int query = i / bytes, byte = i % bytes;
      const std::int64_t at = first + query * row + byte * 8;
      // A generator call makes four flags. Rows that are no multiple of four begin inside of these.
      const int shift = static_cast<int>(at & 3);
      unsigned flags = four_flags(of, at >> 2) | four_flags(of, (at >> 2) + 1) << 4;
      if (shift != 0) flags |= four_flags(of, (at >> 2) + 2) << 8;
      bits[query][byte] = static_cast<std::uint8_t>(flags >> shift);
    }
  }
  [[nodiscard]] FQ_HD bool keeps(int query, int key) const {
    return (bits[query][key >> 3] >> (key & 7) & 1) != 0;
  }

 private:
  static FQ_HD unsigned four_flags(const fq::detail::DropoutBlocks& of, std::int64_t block) {
    std::uint8_t four[4];
    of.keep(block, four);
    return four[0] | four[1] << 1 | four[2] << 2 | four[3] << 3;
  }
};

/// Arguments of all kernels of attention.
struct AttentionData {
  fq::detail::AttentionShape shape;
  fq::detail::AttentionRows rows;
  HeadData<const float> q, k, v;
  const float* mask;
  fq::detail::DropoutBlocks dropped;  ///< of kernels with dropout
  const std::uint64_t* step;          ///< null: the step of `dropped`
  float kept_scale;                   ///< factor of the weights that dropout keeps

  explicit AttentionData(const fq::detail::AttentionInputs& of)
      : shape(of.shape),
        rows(of.rows),
        q(head_data(of.q)),
        k(head_data(of.k)),
        v(head_data(of.v)),
        mask(device_data<float>(of.mask)),
        dropped(of.dropout ? of.dropout->blocks : fq::detail::DropoutBlocks(0, {})),
        step(captured_step(of.q.tensor.device())),
        kept_scale(of.dropout ? static_cast<float>(of.dropout->scale) : 1.0f) {}

  /// Returns the index of a weight in dropout.
  [[nodiscard]] FQ_HD std::int64_t weight_index(int n, int head, int query, int key) const {
    return ((n * shape.heads + head) * shape.queries + query) * shape.keys + key;
  }
  /// Makes the flags of the weights from the index `first`.
  template <int threads, class Keep>
  FQ_HD void fill(Keep& keep, std::int64_t first, int thread) const {
    fq::detail::DropoutBlocks own = dropped;
    // A captured launch has the step of each replay.
    if (step != nullptr) own.step = *step;
    keep.template fill<threads>(own, first, shape.keys, thread);
  }

  /// Returns the mask of a head, or null without a mask.
  [[nodiscard]] FQ_HD const float* head_mask(int n, int head) const {
    return mask == nullptr ? nullptr : mask + n * rows.mask_strides[0] + head * rows.mask_strides[1];
  }
  /// Returns whether a key is hidden from all queries.
  [[nodiscard]] FQ_HD bool hides(const float* own_mask, int key) const {
    return key >= shape.keys ||
           (own_mask != nullptr && rows.mask_strides[2] == 0 &&
            own_mask[key * rows.mask_strides[3]] == -std::numeric_limits<float>::infinity());
  }
  /// Returns the scores of a query and the keys from `key`.
  [[nodiscard]] FQ_HD ScoreRow row_of_query(const float* own_mask, int query, int key) const {
    return {
        0, query < shape.queries ? static_cast<int>(rows.visible_keys(query)) - key : 0,
        own_mask == nullptr ? nullptr : own_mask + query * rows.mask_strides[2] + key * rows.mask_strides[3],
        rows.mask_strides[3]};
  }
  /// Returns the scores of a key and the queries from `query`.
  [[nodiscard]] FQ_HD ScoreRow row_of_key(const float* own_mask, int key, int query) const {
    return {
        rows.causal ? key - static_cast<int>(shape.keys - shape.queries) - query : 0,
        key < shape.keys ? static_cast<int>(shape.queries) - query : 0,
        own_mask == nullptr ? nullptr : own_mask + query * rows.mask_strides[2] + key * rows.mask_strides[3],
        rows.mask_strides[2]};
  }
};

/// Returns the offset of a row's exponents: its largest score, or 0 for -infinity, because exp(-inf - -inf)
/// is NaN.
FQ_HD float score_offset(float largest) {
  return largest == -std::numeric_limits<float>::infinity() ? 0.0f : largest;
}

/// Upper bound of weights that are halves times a scale. If a larger bound is needed, sums of products with
/// these weights are scaled again.
struct WeightBound {
  float value;

  static constexpr float least = 0x1p-126f;
  [[nodiscard]] FQ_HD float scale() const { return loops::half_scale(std::bit_cast<std::uint32_t>(value)); }
  /// Raises the bound and returns the factor of the sums.
  FQ_HD float raise(float bound) {
    if (!(bound > value)) return 1.0f;
    const float before = scale();
    value = bound < std::numeric_limits<float>::max() ? bound : std::numeric_limits<float>::max();
    return scale() * loops::inverse_scale(before);
  }
};

/// Returns the largest factor of a tile's groups.
template <class Tile>
FQ_HD float largest_factor(const Tile& tile) {
  float largest = 0;
  for (int i = 0; i < Tile::groups; ++i) largest = tile.factor[i] > largest ? tile.factor[i] : largest;
  return largest;
}

/// Stores two neighbouring elements of a row of `width` floats, from an even column.
FQ_HD void store_pair(float* row, int column, std::int64_t width, float a, float b) {
  float* to = row + column;
  if (column + 1 < width && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
    *reinterpret_cast<float2*>(to) = float2{a, b};
    return;
  }
  if (column < width) to[0] = a;
  if (column + 1 < width) to[1] = b;
}

}  // namespace fq::cuda
