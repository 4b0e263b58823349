#include <algorithm>
#include <type_traits>

#include "fakequant/core/backend/cuda/attention/attention_tiles.cuh"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/block_map.h"

namespace fq::cuda {
namespace {

/// Arguments of the kernels of gradients. `row_sums` f32 [samples, heads, queries] are the sums of dy * y.
struct GradientData {
  AttentionData forward;
  HeadData<const float> dy;
  const float *log_sums, *row_sums;
  HeadData<float> dq, dk, dv;
};

/// Gradients of a tile of keys (`of_keys`), or of queries, by one block for heads of up to `width` channels.
/// The block reads the other side in tiles, in a fixed order, and recomputes the weights of each pair of
/// tiles. Its own rows are rows of the fragments, so that weights and their gradients are left factors:
///
///     of keys:     dV = P^T dY, dK = dS^T Q
///     of queries:  dQ = dS K
///
/// Here dS = scale * P * (dY V^T - row sums). Products of `exact` have 22 bits, else 11. With `drops`, P of
/// dV and dY V^T are multiplied by the mask of dropout.
template <int width, bool exact, bool of_keys, bool drops>
struct AttentionGradients {
  static constexpr int warps = 512 / width, threads = warps * warp_threads,
                       least_blocks = width > 64 || of_keys ? 1 : 2;
  // Both gradients of 128 columns are 128 registers: fewer other rows leave room for them.
  static constexpr bool has_most_sums = exact && of_keys && width > 64;
  static constexpr int rows = warps * warp_rows, others = width > 128 || has_most_sums ? 16 : 32,
                       columns = width > 128 ? 128 : width;
  static constexpr int step_phases = 4, end_phases = 2;
  static constexpr bool block_barriers[step_phases] = {true, false, false, true};

  struct Place {
    int sample, kv_head, head, heads;  // `heads` heads of queries, from `head`
    int first, column;                 // the first own row, and the first column of the outputs
    int tiles, skipped;  // tiles of the other side per head, and tiles before them that no own row needs
  };
  struct OtherPlace {
    int head, first;
    const float* mask;  // of the head of queries
  };
  struct Nothing {};
  struct Shared {
    HalfTile<rows, width, exact> own, own_outputs;        // K and V, or Q and dY
    HalfTile<others, width, exact> other, other_outputs;  // Q and dY, or K and V
    WarpFactor<rows, others, exact> weights, slopes;
    float row_parts[rows][4];
    float log_sums[of_keys ? others : rows], row_sums[of_keys ? others : rows];
    Place place;
    OtherPlace from;
    int visible[2];
    std::conditional_t<drops, KeepTile<of_keys ? others : rows, of_keys ? rows : others>, Nothing> keep;
  };
  struct Kept {
    Quad weights[others / 8], slopes[others / 8];  // P and dS
    Quad gradient[columns / 8];                    // dK or dQ
    Quad values[of_keys ? columns / 8 : 1];        // dV
    WeightBound bounds[2], value_bound;            // of the slopes of each row, and of all weights
  };

  GradientData data;
  std::int64_t tiles, slices;  // of own rows, and of columns of the outputs

  explicit AttentionGradients(const GradientData& all)
      : data(all),
        tiles((own_rows() + rows - 1) / rows),
        slices((std::max(shape().width, of_keys ? shape().value_width : 0) + columns - 1) / columns) {}

  [[nodiscard]] FQ_HD const fq::detail::AttentionShape& shape() const { return data.forward.shape; }
  [[nodiscard]] FQ_HD std::int64_t own_rows() const { return of_keys ? shape().keys : shape().queries; }
  [[nodiscard]] std::int64_t blocks() const {
    return shape().samples * (of_keys ? shape().kv_heads : shape().heads) * tiles * slices;
  }

  FQ_HD Place place(std::int64_t block) const {
    const std::int64_t slice = block % slices, all = of_keys ? shape().kv_heads : shape().heads,
                       line = block / slices / tiles, head = line % all,
                       shared = shape().heads / shape().kv_heads;
    std::int64_t tile = block / slices % tiles;
    // The last queries see the most keys, and the first keys are seen by the most queries.
    if (!of_keys) tile = tiles - 1 - tile;
    Place out;
    out.sample = static_cast<int>(line / all);
    out.kv_head = static_cast<int>(of_keys ? head : head / shared);
    out.first = static_cast<int>(tile) * rows;
    out.column = static_cast<int>(slice) * columns;
    out.head = static_cast<int>(of_keys ? head * shared : head);
    out.heads = of_keys ? static_cast<int>(shared) : 1;
    out.skipped = 0;
    if (of_keys) {
      // The first query that sees the first own key.
      std::int64_t query = 0;
      if (data.forward.rows.causal) query = out.first - (shape().keys - shape().queries);
      if (query < 0) query = 0;
      out.skipped = static_cast<int>(query / others);
      out.tiles = static_cast<int>((shape().queries + others - 1) / others) - out.skipped;
      if (out.tiles < 0) out.tiles = 0;
    } else {
      const std::int64_t end = out.first + rows, last = (end < shape().queries ? end : shape().queries) - 1;
      out.tiles = static_cast<int>((data.forward.rows.visible_keys(last) + others - 1) / others);
    }
    return out;
  }
  FQ_HD int steps(const Shared& shared) const { return shared.place.heads * shared.place.tiles; }
  FQ_HD OtherPlace other_place(const Place& place, int step) const {
    const int turn = step / place.tiles, head = place.head + turn;
    return {head, (step - turn * place.tiles + place.skipped) * others,
            data.forward.head_mask(place.sample, head)};
  }

  /// Loads a tile of keys and values, or of queries and output gradients.
  template <bool keys, class Tile>
  FQ_HD void load(Thread t, int sample, int head, int first, Tile& tile, Tile& outputs) const {
    const int warp = t.thread / warp_threads, lane = t.thread % warp_threads;
    const auto& forward = data.forward;
    const std::int64_t end = keys ? shape().keys : shape().queries;
    const FloatRows x = (keys ? forward.k : forward.q).rows(sample, head, first, end, shape().width),
                    y = (keys ? forward.v : data.dy).rows(sample, head, first, end, shape().value_width);
    for (int group = warp; group < 2 * tile.groups; group += warps)
      group < tile.groups ? tile.load(x, group, lane) : outputs.load(y, group - tile.groups, lane);
  }
  /// Loads the numbers of queries that both kernels need.
  FQ_HD void load_sums(Thread t, int sample, int head, int first, Shared& shared) const {
    constexpr int count = of_keys ? others : rows;
    const std::int64_t line = (sample * shape().heads + head) * shape().queries;
    for (int i = t.thread; i < count; i += threads) {
      const bool inside = first + i < shape().queries;
      shared.log_sums[i] = inside ? data.log_sums[line + first + i] : 0.0f;
      shared.row_sums[i] = inside ? data.row_sums[line + first + i] : 0.0f;
    }
  }

  FQ_HD void begin(Thread t, Shared& shared, Kept& kept) const {
    const Place own = place(t.block);
    if (t.thread == 0) {
      shared.place = own;
      shared.visible[0] = 0;
    }
    load<of_keys>(t, own.sample, of_keys ? own.kv_head : own.head, own.first, shared.own, shared.own_outputs);
    if (!of_keys) load_sums(t, own.sample, own.head, own.first, shared);
    clear(kept.gradient);
    clear(kept.values);
    kept.bounds[0] = kept.bounds[1] = kept.value_bound = {WeightBound::least};
  }

  FQ_HD void load_others(Thread t, Shared& shared, int step) const {
    const Place& own = shared.place;
    const OtherPlace from = other_place(own, step);
    if (t.thread == 0) shared.from = from;
    load<!of_keys>(t, own.sample, of_keys ? from.head : own.kv_head, from.first, shared.other,
                   shared.other_outputs);
    if (of_keys) load_sums(t, own.sample, from.head, from.first, shared);
    const int key = (of_keys ? own.first : from.first) + t.thread;
    if (t.thread < (of_keys ? rows : others) && !data.forward.hides(from.mask, key))
      shared.visible[step & 1] = 1;  // all threads write the same
    if constexpr (drops) {
      const std::int64_t first =
          data.forward.weight_index(own.sample, of_keys ? from.head : own.head,
                                    of_keys ? from.first : own.first, of_keys ? own.first : from.first);
      data.forward.template fill<threads>(shared.keep, first, t.thread);
    }
  }
  FQ_HD bool keeps(const Shared& shared, int row, int column) const {
    if constexpr (drops)
      return shared.keep.keeps(of_keys ? column : row, of_keys ? row : column);
    else
      return true;
  }
  /// Returns whether the warp's rows and the tile of the other side have no visible pair.
  FQ_HD bool skips(int warp, const Shared& shared, int step) const {
    const int first = shared.place.first + warp * warp_rows,
              query = of_keys ? shared.from.first + others - 1 : first + warp_rows - 1,
              key = of_keys ? first : shared.from.first;
    return shared.visible[step & 1] == 0 || first >= own_rows() ||
           data.forward.rows.visible_keys(query) <= key;
  }

  /// Computes P and dS of the own rows, and the largest slope of each row.
  FQ_HD void multiply(int row, int lane, Shared& shared, Kept& kept) const {
    clear(kept.weights);
    clear(kept.slopes);
    add_row_products(shared.own, row, shared.other, mma_steps(shape().width), lane, kept.weights);
    add_row_products(shared.own_outputs, row, shared.other_outputs, mma_steps(shape().value_width), lane,
                     kept.slopes);
    if constexpr (drops) drop_slopes(row, lane, shared, kept.slopes);
    const float bound = of_keys ? largest_factor(shared.other_outputs) : 0.0f,
                rescaled = kept.value_bound.raise(bound), scale = kept.value_bound.scale();
    if constexpr (of_keys)
      for (Quad& quad : kept.values)
        for (float& sum : quad) sum *= rescaled;
    FQ_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int own = row + quad_row(lane, 2 * half);
      make_scores(score_row(shared.from, shared.place.first + own),
                  shared.own.row_factor(own) * static_cast<float>(data.forward.rows.scale), shared.other,
                  lane, half, kept.weights);
      std::uint32_t largest = 0;
      FQ_UNROLL
      for (int n = 0; n < others / 8; ++n) {
        FQ_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const int column = quad_column(lane, n, i);
          differentiate(own, column, shared, kept.weights[n][i], kept.slopes[n][i]);
          const std::uint32_t magnitude = loops::finite_magnitude(kept.slopes[n][i]);
          largest = magnitude > largest ? magnitude : largest;
          if (of_keys)
            kept.weights[n][i] = keeps(shared, own, column)
                                     ? kept.weights[n][i] * (shared.other_outputs.row_factor(column) * scale)
                                     : 0.0f;
        }
      }
      shared.row_parts[own][lane % 4] = std::bit_cast<float>(largest);
    }
    if constexpr (of_keys) shared.weights.store(kept.weights, row, lane);
  }
  /// Multiplies the sums of products dy v by the mask of dropout.
  FQ_HD void drop_slopes(int row, int lane, const Shared& shared, Quad (&slopes)[others / 8]) const {
    FQ_UNROLL
    for (int n = 0; n < others / 8; ++n) {
      FQ_UNROLL
      for (int i = 0; i < 4; ++i) {
        const bool keep = keeps(shared, row + quad_row(lane, i), quad_column(lane, n, i));
        slopes[n][i] = keep ? slopes[n][i] * data.forward.kept_scale : 0.0f;
      }
    }
  }
  FQ_HD ScoreRow score_row(const OtherPlace& from, int row) const {
    return of_keys ? data.forward.row_of_key(from.mask, row, from.first)
                   : data.forward.row_of_query(from.mask, row, from.first);
  }
  /// Replaces a score by its weight. Replaces a sum of products dy v by the gradient of the score, multiplied
  /// by the factor of the other row.
  FQ_HD void differentiate(int row, int column, const Shared& shared, float& weight, float& slope) const {
    const int query = of_keys ? column : row;
    const float score = weight, power = score - shared.log_sums[query];
    weight = fq::detail::softmax_power(power > 0.0f ? 0.0f : power, 0.0f);
    const float dp = slope * (shared.own_outputs.row_factor(row) * shared.other_outputs.row_factor(column));
    // A hidden pair has no gradient, even if dp is not finite.
    slope = score == -std::numeric_limits<float>::infinity()
                ? 0.0f
                : fq::detail::attention_gradient(dp, weight, shared.row_sums[query],
                                                 static_cast<float>(data.forward.rows.scale)) *
                      shared.other.row_factor(column);
  }

  FQ_HD void scale_slopes(int row, int lane, Shared& shared, Kept& kept) const {
    for (int half = 0; half < 2; ++half) {
      float largest = 0;
      for (const float part : shared.row_parts[row + quad_row(lane, 2 * half)])
        if (part > largest) largest = part;
      const float rescaled = kept.bounds[half].raise(largest), scale = kept.bounds[half].scale();
      for (Quad& quad : kept.gradient)
        for (int i = 2 * half; i < 2 * half + 2; ++i) quad[i] *= rescaled;
      for (Quad& quad : kept.slopes)
        for (int i = 2 * half; i < 2 * half + 2; ++i) quad[i] *= scale;
    }
    shared.slopes.store(kept.slopes, row, lane);
  }

  FQ_HD void add_gradients(int row, int lane, Shared& shared, Kept& kept) const {
    const int first = shared.place.column;
    if constexpr (of_keys)
      shared.weights.add_products(kept.weights, row, shared.other_outputs, first, lane, kept.values);
    shared.slopes.add_products(kept.slopes, row, shared.other, first, lane, kept.gradient);
  }

  template <int Phase>
  FQ_HD void step(Thread t, Shared& shared, Kept& kept, int i) const {
    const int warp = t.thread / warp_threads, lane = t.thread % warp_threads, row = warp * warp_rows;
    if constexpr (Phase == 0) return load_others(t, shared, i);
    if constexpr (Phase == 3)
      if (t.thread == 0) shared.visible[(i + 1) & 1] = 0;
    if (skips(warp, shared, i)) return;
    if constexpr (Phase == 1) multiply(row, lane, shared, kept);
    if constexpr (Phase == 2) scale_slopes(row, lane, shared, kept);
    if constexpr (Phase == 3) add_gradients(row, lane, shared, kept);
  }

  FQ_HD void write(const Place& own, int row, int lane, const Quad (&sums)[columns / 8],
                   const HeadData<float>& to, std::int64_t size, int half, float factor) const {
    const std::int64_t at = own.first + row + quad_row(lane, 2 * half);
    if (at >= own_rows()) return;
    float* out = to.at(own.sample, of_keys ? own.kv_head : own.head, at) + own.column;
    for (int n = 0; n < columns / 8; ++n)
      store_pair(out, quad_column(lane, n, 0), size - own.column, sums[n][2 * half] * factor,
                 sums[n][2 * half + 1] * factor);
  }
  // The rows of a fragment, one after the other: a constant index keeps the sums in registers.
  template <int half>
  FQ_HD void end(Thread t, const Shared& shared, const Kept& kept) const {
    const int lane = t.thread % warp_threads, row = t.thread / warp_threads * warp_rows;
    const Place& own = shared.place;
    write(own, row, lane, kept.gradient, of_keys ? data.dk : data.dq, shape().width, half,
          loops::inverse_scale(kept.bounds[half].scale()));
    if constexpr (of_keys)
      write(own, row, lane, kept.values, data.dv, shape().value_width, half,
            loops::inverse_scale(kept.value_bound.scale()) * (drops ? data.forward.kept_scale : 1.0f));
  }
};

/// Sums of dy * y of each row, by eight threads per row. With a mask, clears elements of dy first.
struct OutputRowSums {
  static constexpr int phases = 2, lanes = 8, block_rows = block_threads / lanes;
  struct Shared {
    float parts[block_rows][lanes];
  };
  HeadData<const float> y, dy;
  const std::uint8_t* mask;  // may be null
  float* cleared;            // dy for writing, or null without a mask
  std::int64_t heads, queries, width, rows;
  float* sums;

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const int own = t.thread / lanes, lane = t.thread % lanes;
    const std::int64_t row = t.block * block_rows + own;
    if (row >= rows) return;
    if (Phase == 1) {
      if (lane != 0) return;
      float sum = 0;
      for (const float part : shared.parts[own]) sum += part;
      sums[row] = sum;
      return;
    }
    const std::int64_t line = fq::detail::quotient(row, queries), n = fq::detail::quotient(line, heads);
    const float* gradient = dy.at(n, line - n * heads, row - line * queries);
    const FloatRows a(y.at(n, line - n * heads, row - line * queries), 0, 1, width), b(gradient, 0, 1, width);
    const std::int64_t begin = gradient - dy.data;
    float sum = 0;
    for (int column = lane * group_size; column < width; column += lanes * group_size) {
      float left[group_size], right[group_size];
      a.load(0, column, left);
      b.load(0, column, right);
      if (mask != nullptr) {
        const int left_in_row = static_cast<int>(width) - column,
                  count = left_in_row < group_size ? left_in_row : group_size;
        apply_bits(mask, begin + column, count, right);
        store_group(cleared + begin + column, count, right);
      }
      for (int j = 0; j < group_size; ++j) sum += left[j] * right[j];
    }
    shared.parts[own][lane] = sum;
  }
};

template <int width, bool exact, bool drops>
void launch(const GradientData& data, Device device) {
  const AttentionGradients<width, exact, true, drops> keys(data);
  launch_steps(device, keys.blocks(), keys);
  const AttentionGradients<width, exact, false, drops> queries(data);
  launch_steps(device, queries.blocks(), queries);
}

template <bool exact, bool drops>
void launch_for_width(const GradientData& data, Device device) {
  const auto& shape = data.forward.shape;
  const std::int64_t widest = std::max(shape.width, shape.value_width);
  if (widest <= 64) return launch<64, exact, drops>(data, device);
  widest <= 128 ? launch<128, exact, drops>(data, device) : launch<256, exact, drops>(data, device);
}

}  // namespace

void attention_backward(const fq::detail::AttentionInputs& inputs, const fq::detail::HeadRows& y,
                        const Tensor& log_sums, fq::detail::HeadRows& dy, const Tensor& bits, bool exact,
                        fq::detail::HeadRows& dq, fq::detail::HeadRows& dk, fq::detail::HeadRows& dv) {
  const auto& shape = inputs.shape;
  const Device device = dy.tensor.device();
  Tensor row_sums = Tensor::empty(log_sums.shape(), DType::f32, device);
  const std::int64_t rows = row_sums.numel();
  float* cleared = bits.defined() ? mutable_device_data<float>(dy.tensor) : nullptr;
  launch_blocks(
      device, (rows + OutputRowSums::block_rows - 1) / OutputRowSums::block_rows,
      OutputRowSums{head_data(y), head_data(dy), device_data<std::uint8_t>(bits), cleared, shape.heads,
                    shape.queries, shape.value_width, rows, mutable_device_data<float>(row_sums)});
  const GradientData data{AttentionData(inputs),        head_data(dy),         device_data<float>(log_sums),
                          device_data<float>(row_sums), mutable_head_data(dq), mutable_head_data(dk),
                          mutable_head_data(dv)};
  if (inputs.dropout)
    exact ? launch_for_width<true, true>(data, device) : launch_for_width<false, true>(data, device);
  else
    exact ? launch_for_width<true, false>(data, device) : launch_for_width<false, false>(data, device);
}

}  // namespace fq::cuda
