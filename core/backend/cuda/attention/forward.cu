#include <algorithm>
#include <type_traits>

#include "fakequant/core/backend/cuda/attention/attention_tiles.cuh"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

/// Attention of a tile of queries by one block, for heads of up to `width` channels. The block reads keys in
/// tiles and keeps, of each row, the largest score, the sum of exponentials and the weighted sum of values
/// (Milakov and Gimelshein, arXiv:1805.02867; Dao, arXiv:2307.08691).
template <int width, bool drops>
struct AttentionForward {
  static constexpr int warps = width > 64 ? 4 : 8, threads = warps * warp_threads,
                       least_blocks = width > 64 ? 3 : 2;
  static constexpr int rows = warps * warp_rows, keys = width > 128 ? 16 : 32,
                       columns = width > 128 ? 128 : width;
  static constexpr int step_phases = 4, end_phases = 2;
  static constexpr bool block_barriers[step_phases] = {true, false, false, true};

  struct Place {
    int sample, head, kv_head, query, column, steps;
    const float* mask;  // of the head
  };
  struct Nothing {};
  struct Shared {
    HalfTile<rows, width, true> q;
    HalfTile<keys, width, true> k;
    HalfTile<keys, columns, true> v;
    WarpFactor<rows, keys, true> weights;
    float row_parts[rows][4];  // of the four threads of a row
    Place place;
    int visible[2];  // whether a query may see a key of the tile; of even and odd steps
    std::conditional_t<drops, KeepTile<rows, keys>, Nothing> keep;
  };
  struct Kept {
    Quad scores[keys / 8], sums[columns / 8];
    float largest[2], sum[2];
    WeightBound bound;
  };

  AttentionData data;
  HeadData<float> y;
  float* log_sums;
  std::int64_t tiles, slices;  // of queries, and of value columns

  AttentionForward(const fq::detail::AttentionInputs& inputs, fq::detail::HeadRows& out, Tensor& logs)
      : data(inputs),
        y(mutable_head_data(out)),
        log_sums(mutable_device_data<float>(logs)),
        tiles((data.shape.queries + rows - 1) / rows),
        slices((data.shape.value_width + columns - 1) / columns) {}
  [[nodiscard]] std::int64_t blocks() const { return data.shape.samples * data.shape.heads * tiles * slices; }

  // Tiles of a head follow each other, so that they find its keys in the cache. The last tile, which sees the
  // most keys, is first.
  FQ_HD Place place(std::int64_t block) const {
    const std::int64_t slice = block % slices, tile = block / slices % tiles, line = block / slices / tiles;
    Place out;
    out.sample = static_cast<int>(line / data.shape.heads);
    out.head = static_cast<int>(line % data.shape.heads);
    out.kv_head = out.head / static_cast<int>(data.shape.heads / data.shape.kv_heads);
    out.query = static_cast<int>(tiles - 1 - tile) * rows;
    out.column = static_cast<int>(slice) * columns;
    const std::int64_t end = out.query + rows,
                       last = (end < data.shape.queries ? end : data.shape.queries) - 1;
    out.steps = static_cast<int>((data.rows.visible_keys(last) + keys - 1) / keys);
    out.mask = data.head_mask(out.sample, out.head);
    return out;
  }
  FQ_HD int steps(const Shared& shared) const { return shared.place.steps; }

  FQ_HD void begin(Thread t, Shared& shared, Kept& kept) const {
    const int warp = t.thread / warp_threads, lane = t.thread % warp_threads;
    const Place own = place(t.block);
    if (t.thread == 0) {
      shared.place = own;
      shared.visible[0] = 0;
    }
    const FloatRows from = data.q.rows(own.sample, own.head, own.query, data.shape.queries, data.shape.width);
    for (int group = warp; group < shared.q.groups; group += warps) shared.q.load(from, group, lane);
    clear(kept.sums);
    for (int half = 0; half < 2; ++half) {
      kept.largest[half] = -std::numeric_limits<float>::infinity();
      kept.sum[half] = 0;
    }
    kept.bound = {WeightBound::least};
  }

  FQ_HD void load_keys(Thread t, Shared& shared, int key) const {
    const int warp = t.thread / warp_threads, lane = t.thread % warp_threads;
    const Place& own = shared.place;
    const FloatRows k = data.k.rows(own.sample, own.kv_head, key, data.shape.keys, data.shape.width);
    const FloatRows v(data.v.at(own.sample, own.kv_head, key) + own.column, data.v.row, data.shape.keys - key,
                      data.shape.value_width - own.column);
    for (int group = warp; group < shared.k.groups; group += warps) shared.k.load(k, group, lane);
    for (int group = warp; group < shared.v.groups; group += warps) shared.v.load(v, group, lane);
  }
  /// Returns whether the rows of the warp see no key of the tile.
  FQ_HD bool skips(int warp, const Shared& shared, int step) const {
    const int first = shared.place.query + warp * warp_rows, last = first + warp_rows - 1;
    return shared.visible[step & 1] == 0 || first >= data.shape.queries ||
           data.rows.visible_keys(last) <= step * keys;
  }

  FQ_HD void multiply_keys(int row, int lane, Shared& shared, int key, Kept& kept) const {
    clear(kept.scores);
    add_row_products(shared.q, row, shared.k, mma_steps(data.shape.width), lane, kept.scores);
    const auto scale = static_cast<float>(data.rows.scale);
    for (int half = 0; half < 2; ++half) {
      const int own = row + quad_row(lane, 2 * half);
      make_scores(data.row_of_query(shared.place.mask, shared.place.query + own, key),
                  shared.q.row_factor(own) * scale, shared.k, lane, half, kept.scores);
      float largest = -std::numeric_limits<float>::infinity();
      FQ_UNROLL
      for (int n = 0; n < keys / 8; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i)
          if (kept.scores[n][i] > largest) largest = kept.scores[n][i];
      shared.row_parts[own][lane % 4] = largest;
    }
  }

  FQ_HD bool keeps(const Shared& shared, int row, int column) const {
    if constexpr (drops)
      return shared.keep.keeps(row, column);
    else
      return true;
  }

  FQ_HD void make_weights(int row, int lane, Shared& shared, Kept& kept) const {
    const float rescaled = kept.bound.raise(largest_factor(shared.v)), scale = kept.bound.scale();
    for (int half = 0; half < 2; ++half) {
      const float before = kept.largest[half];
      float& largest = kept.largest[half];
      for (const float part : shared.row_parts[row + quad_row(lane, 2 * half)])
        if (part > largest) largest = part;
      const float offset = score_offset(largest),
                  shrunk = before == largest ? 1.0f : fq::detail::softmax_power(before, offset);
      kept.sum[half] *= shrunk;
      for (Quad& quad : kept.sums)
        for (int i = 2 * half; i < 2 * half + 2; ++i) quad[i] *= shrunk * rescaled;
      FQ_UNROLL
      for (int n = 0; n < keys / 8; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          float& weight = kept.scores[n][i];
          weight = fq::detail::softmax_power(weight, offset);
          kept.sum[half] += weight;
          const int column = quad_column(lane, n, i);
          weight *= shared.v.row_factor(column) * scale;
          if (!keeps(shared, row + quad_row(lane, i), column)) weight = 0.0f;
        }
    }
    shared.weights.store(kept.scores, row, lane);
  }

  template <int Phase>
  FQ_HD void step(Thread t, Shared& shared, Kept& kept, int i) const {
    const int warp = t.thread / warp_threads, lane = t.thread % warp_threads, row = warp * warp_rows;
    const int key = i * keys;
    if constexpr (Phase == 0) {
      load_keys(t, shared, key);
      if (t.thread < keys && !data.hides(shared.place.mask, key + t.thread))
        shared.visible[i & 1] = 1;  // all threads write the same
      if constexpr (drops) {
        const Place& own = shared.place;
        data.template fill<threads>(shared.keep, data.weight_index(own.sample, own.head, own.query, key),
                                    t.thread);
      }
      return;
    }
    if constexpr (Phase == 3)
      if (t.thread == 0) shared.visible[(i + 1) & 1] = 0;
    if (skips(warp, shared, i)) return;
    if constexpr (Phase == 1) multiply_keys(row, lane, shared, key, kept);
    if constexpr (Phase == 2) make_weights(row, lane, shared, kept);
    if constexpr (Phase == 3) shared.weights.add_products(kept.scores, row, shared.v, 0, lane, kept.sums);
  }

  template <int Phase>
  FQ_HD void end(Thread t, Shared& shared, Kept& kept) const {
    const int lane = t.thread % warp_threads, row = t.thread / warp_threads * warp_rows;
    for (int half = 0; half < 2; ++half) {
      const int own = row + quad_row(lane, 2 * half);
      if constexpr (Phase == 0) shared.row_parts[own][lane % 4] = kept.sum[half];
      if constexpr (Phase == 1) write(shared, own, lane, half, kept);
    }
  }
  FQ_HD void write(const Shared& shared, int row, int lane, int half, const Kept& kept) const {
    const std::int64_t query = shared.place.query + row,
                       line = shared.place.sample * data.shape.heads + shared.place.head;
    if (query >= data.shape.queries) return;
    const float(&parts)[4] = shared.row_parts[row];
    const float sum = (parts[0] + parts[1]) + (parts[2] + parts[3]),
                share = sum == 0.0f ? 0.0f : 1.0f / sum,  // a row without visible keys is 0
        factor = loops::inverse_scale(kept.bound.scale()) * (drops ? data.kept_scale : 1.0f);
    float* to = y.at(shared.place.sample, shared.place.head, query) + shared.place.column;
    for (int n = 0; n < columns / 8; ++n)
      store_pair(to, quad_column(lane, n, 0), data.shape.value_width - shared.place.column,
                 kept.sums[n][2 * half] * share * factor, kept.sums[n][2 * half + 1] * share * factor);
    if (shared.place.column == 0 && lane % 4 == 0)
      log_sums[line * data.shape.queries + query] =
          sum == 0.0f ? std::numeric_limits<float>::infinity() : kept.largest[half] + std::log(sum);
  }
};

template <int width, bool drops>
void launch(const fq::detail::AttentionInputs& inputs, fq::detail::HeadRows& y, Tensor& log_sums) {
  const AttentionForward<width, drops> body(inputs, y, log_sums);
  launch_steps(y.tensor.device(), body.blocks(), body);
}

template <bool drops>
void launch_for_width(const fq::detail::AttentionInputs& inputs, fq::detail::HeadRows& y, Tensor& log_sums) {
  const std::int64_t widest = std::max(inputs.shape.width, inputs.shape.value_width);
  if (widest <= 64) return launch<64, drops>(inputs, y, log_sums);
  widest <= 128 ? launch<128, drops>(inputs, y, log_sums) : launch<256, drops>(inputs, y, log_sums);
}

}  // namespace

void attention(const fq::detail::AttentionInputs& inputs, fq::detail::HeadRows& y, Tensor& log_sums) {
  inputs.dropout ? launch_for_width<true>(inputs, y, log_sums) : launch_for_width<false>(inputs, y, log_sums);
}

}  // namespace fq::cuda
