#include <algorithm>

#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/sums.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/row_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::NormGradient;

/// Formulas of layer normalization. A row has the sums of g = dy * gamma and of g * normal. A column has the
/// gradients of gamma and beta.
template <class Number>
struct LayerRule {
  using T = Number;
  using Sum = TwoSums<T>;
  struct Row {
    T center, spread;
  };
  struct Means {
    T average, slope;
  };
  const T *mean, *inverse;

  FQ_HD Row row(std::int64_t r) const { return {mean[r], inverse[r]}; }
  FQ_HD T normal(T x, const Row& of) const { return fq::detail::layer_normal(x, of.center, of.spread); }
  FQ_HD T gradient(T dy, T gamma, const Row&) const { return dy * gamma; }
  FQ_HD void add_to_row(Sum& sum, T g, T normal) const {
    sum.first.add(g);
    sum.second.add_product(g, normal);
  }
  FQ_HD void add_to_column(Sum& sum, T dy, T normal) const {
    sum.first.add_product(dy, normal);
    sum.second.add(dy);
  }
  FQ_HD Means means(const Sum& sum, std::int64_t length) const {
    const double n = static_cast<double>(length);
    return {static_cast<T>(sum.first.value() / n), static_cast<T>(sum.second.value() / n)};
  }
  FQ_HD T dx(T g, T normal, const Row& of, const Means& means) const {
    return fq::detail::layer_norm_gradient(g, normal, of.spread, means.average, means.slope);
  }
};

/// Formulas of RMS normalization. A row has the sum of g * normal with g = dy * gamma / root. A column has
/// the gradient of gamma.
template <class Number>
struct RmsRule {
  using T = Number;
  using Sum = SumOf<T>;
  using Row = T;
  const T* roots;
  T share;  // 1 / length

  FQ_HD Row row(std::int64_t r) const { return roots[r]; }
  FQ_HD T normal(T x, Row root) const { return fq::detail::rms_normal(x, root); }
  FQ_HD T gradient(T dy, T gamma, Row root) const { return fq::detail::rms_normal(dy * gamma, root); }
  FQ_HD void add_to_row(Sum& sum, T g, T normal) const { sum.add_product(g, normal); }
  FQ_HD void add_to_column(Sum& sum, T dy, T normal) const { sum.add_product(dy, normal); }
  FQ_HD T means(const Sum& sum, std::int64_t) const { return static_cast<T>(sum.value()) * share; }
  FQ_HD T dx(T g, T normal, Row, T slope) const { return fq::detail::rms_norm_gradient(g, normal, slope); }
};

/// Arguments of both passes.
template <class Rule>
struct GradientRows {
  using T = typename Rule::T;
  RowBlocks shape;
  Rule rule;
  const T *dy, *x, *gamma;
  const std::uint8_t* mask;  // null without one
};

/// Gradients of rows. A step of a block computes `rows_of_block` rows. With `with_columns`, dy and x are read
/// once: each thread has one group of columns, and adds its elements over all rows of the block.
template <class Rule, bool with_columns>
struct RowGradients {
  using T = typename Rule::T;
  using Sum = typename Rule::Sum;
  static constexpr int threads = block_threads, least_blocks = sizeof(T) == sizeof(float) ? 3 : 1;
  static constexpr int step_phases = 2 + join_phases, end_phases = 1;
  // Lanes after the first 16 are in other warps.
  static constexpr bool block_barriers[step_phases] = {true, false, false, true, true};
  struct Shared {
    Sum sums[block_threads];
    GroupSums<Sum> columns[with_columns ? block_threads : 1];
    int steps;
  };
  // The first group of each thread stays in registers between the sums and the result.
  struct Group {
    T g[group_size], normal[group_size];
  };
  struct Kept {
    Group group;
    GroupSums<Sum> columns;
  };
  GradientRows<Rule> rows;
  const T* sum;  // null without one
  T* dx;
  GroupSums<Sum>* partial;  // [groups of columns, blocks]

  FQ_HD int steps(const Shared& shared) const { return shared.steps; }
  FQ_HD void begin(Thread t, Shared& shared, Kept& kept) const {
    kept.columns = {};
    if (t.thread != 0) return;
    const std::int64_t left = rows.shape.blocks() - t.block;
    const int steps = static_cast<int>((left + t.blocks - 1) / t.blocks);
    shared.steps = steps > 1 ? steps : 1;  // blocks without rows write sums of 0
  }
  FQ_HD RowBlocks::Place place(Thread t, int step) const {
    return rows.shape.place({t.block + step * t.blocks, t.blocks, t.thread});
  }

  /// Loads g and the normalized values of a group of the row's elements, and adds it to the sums of columns.
  FQ_HD void load(std::int64_t row, std::int64_t first, int count, Group& to, Kept& kept) const {
    const std::int64_t at = row * rows.shape.length + first;
    const auto numbers = rows.rule.row(row);
    T factor[group_size];
    load_group(rows.dy + at, count, to.g);
    apply_bits(rows.mask, at, count, to.g);
    load_group(rows.x + at, count, to.normal);
    load_or(rows.gamma, T{1}, first, count, factor);
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) continue;
      to.normal[j] = rows.rule.normal(to.normal[j], numbers);
      if constexpr (with_columns) rows.rule.add_to_column(kept.columns.v[j], to.g[j], to.normal[j]);
      to.g[j] = rows.rule.gradient(to.g[j], factor[j], numbers);
    }
  }
  template <bool made, class F>
  FQ_HD void visit(const RowBlocks::Place& p, Kept& kept, const F& f) const {
    const auto own = [&](std::int64_t first, int count, Group& to) { load(p.row, first, count, to, kept); };
    if constexpr (with_columns) {
      const int first = p.lane * group_size, left = static_cast<int>(rows.shape.length) - first;
      if (left <= 0) return;
      const int count = left < group_size ? left : group_size;
      if constexpr (!made) own(first, count, kept.group);
      f(first, count, kept.group);
    } else {
      visit_lane_values<made>(rows.shape, p.lane, kept.group, own, f);
    }
  }
  FQ_HD Sum row_part(const RowBlocks::Place& p, Kept& kept) const {
    Sum total{};
    visit<false>(p, kept, [&](std::int64_t, int count, const Group& of) {
      for (int j = 0; j < group_size; ++j)
        if (j < count) rows.rule.add_to_row(total, of.g[j], of.normal[j]);
    });
    return total;
  }
  FQ_HD void write(const RowBlocks::Place& p, const Sum& total, Kept& kept) const {
    const auto means = rows.rule.means(total, rows.shape.length);
    const auto numbers = rows.rule.row(p.row);
    visit<true>(p, kept, [&](std::int64_t first, int count, Group& of) {
      const std::int64_t at = p.row * rows.shape.length + first;
      T before[group_size];
      if (sum != nullptr) load_group(sum + at, count, before);
      for (int j = 0; j < group_size; ++j) {
        if (j >= count) continue;
        of.g[j] = rows.rule.dx(of.g[j], of.normal[j], numbers, means);
        if (sum != nullptr) of.g[j] = before[j] + of.g[j];
      }
      store_group(dx + at, count, of.g);
    });
  }

  template <int Phase>
  FQ_HD void step(Thread t, Shared& shared, Kept& kept, int i) const {
    const auto p = place(t, i);
    if (p.row < rows.shape.rows) {
      if constexpr (Phase == 0) shared.sums[t.thread] = row_part(p, kept);
      if constexpr (0 < Phase && Phase < 4) join_lanes<Phase - 1>(rows.shape, p, shared.sums, JoinSums{});
      if constexpr (Phase == 4) write(p, shared.sums[p.first], kept);
    }
    if constexpr (Phase == 4 && with_columns)
      if (i + 1 == shared.steps) shared.columns[t.thread] = kept.columns;
  }
  /// The threads of the first row add the sums of the other rows of the block.
  template <int>
  FQ_HD void end(Thread t, const Shared& shared, const Kept& kept) const {
    if constexpr (with_columns) {
      const int lanes = rows.shape.lanes;
      if (t.thread >= lanes || std::int64_t{t.thread} * group_size >= rows.shape.length) return;
      GroupSums<Sum> total = kept.columns;
      for (int other = t.thread + lanes; other < block_threads; other += lanes)
        total.join(shared.columns[other]);
      partial[t.thread * t.blocks + t.block] = total;
    }
  }
};

/// The sums over rows alone, one column for each channel.
template <class Rule>
struct ColumnTerms {
  GradientRows<Rule> rows;
  FQ_HD void operator()(typename Rule::Sum& sum, std::int64_t i, std::int64_t) const {
    const auto numbers = rows.rule.row(quotient(i, rows.shape.length));
    const bool kept = rows.mask == nullptr || get_bit(rows.mask, i);
    rows.rule.add_to_column(sum, kept ? rows.dy[i] : typename Rule::T{0},
                            rows.rule.normal(rows.x[i], numbers));
  }
};

/// Writes the gradients that are not null.
template <class T>
struct PutParameters {
  T *dgamma, *dbeta;
  FQ_HD void operator()(std::int64_t c, const TwoSums<T>& sum) const {
    if (dgamma != nullptr) dgamma[c] = static_cast<T>(sum.first.value());
    if (dbeta != nullptr) dbeta[c] = static_cast<T>(sum.second.value());
  }
  FQ_HD void operator()(std::int64_t c, const SumOf<T>& sum) const {
    dgamma[c] = static_cast<T>(sum.value());
  }
};

/// Blocks of a launch that makes sums of columns. Each block has some steps, because it writes a partial sum
/// of each column, and the blocks of a large tensor run at once.
std::int64_t column_blocks(const RowBlocks& shape) {
  constexpr std::int64_t most = 384, least_steps = 4;
  return std::clamp<std::int64_t>((shape.blocks() + least_steps - 1) / least_steps, 1, most);
}

template <class Rule>
void write_gradients(NormGradient& gradient, const Tensor& x, std::int64_t length, std::int64_t count,
                     const Tensor& gamma, Rule rule, Tensor& dgamma, Tensor& dbeta) {
  using T = typename Rule::T;
  using Sum = typename Rule::Sum;
  if (length == 0) return;
  const Device device = x.device();
  const auto shape = RowBlocks::of(count, length);
  const GradientRows<Rule> rows{shape,
                                rule,
                                device_data<T>(gradient.dy),
                                device_data<T>(x),
                                device_data<T>(gamma),
                                device_data<std::uint8_t>(gradient.mask)};
  const T* sum = device_data<T>(gradient.sum);
  T* dx = mutable_device_data<T>(gradient.dx);
  const bool parameters = dgamma.defined() || dbeta.defined();
  const PutParameters<T> put{mutable_device_data<T>(dgamma), mutable_device_data<T>(dbeta)};
  if (!parameters || length > std::int64_t{block_threads} * group_size) {
    launch_steps(device, shape.blocks(), RowGradients<Rule, false>{rows, sum, dx, nullptr});
    if (parameters)
      reduce_channels(device, {length, 1, x.numel()}, SumTerms<Sum, ColumnTerms<Rule>>{{rows}}, put);
    return;
  }
  const std::int64_t blocks = column_blocks(shape), groups = (length + group_size - 1) / group_size;
  Storage partial(groups * blocks * static_cast<std::int64_t>(sizeof(GroupSums<Sum>)), device);
  launch_steps(device, blocks,
               RowGradients<Rule, true>{rows, sum, dx, mutable_device_data<GroupSums<Sum>>(partial)});
  join_channel_parts(device, groups, blocks, partial, SumTerms<GroupSums<Sum>, NoTerms>{},
                     PutGroup<PutParameters<T>>{put, length});
}

}  // namespace

void layer_norm_backward(NormGradient& gradient, const Tensor& x, std::int64_t length, const Tensor& gamma,
                         const Tensor& mean, const Tensor& inverse, Tensor& dgamma, Tensor& dbeta) {
  visit_float(x.dtype(), [&]<class T>(T) {
    write_gradients(gradient, x, length, mean.numel(), gamma,
                    LayerRule<T>{device_data<T>(mean), device_data<T>(inverse)}, dgamma, dbeta);
  });
}

void rms_norm_backward(NormGradient& gradient, const Tensor& x, std::int64_t length, const Tensor& gamma,
                       const Tensor& roots, Tensor& dgamma) {
  Tensor none;
  visit_float(x.dtype(), [&]<class T>(T) {
    write_gradients(gradient, x, length, roots.numel(), gamma,
                    RmsRule<T>{device_data<T>(roots), row_share<T>(length)}, dgamma, none);
  });
}

}  // namespace fq::cuda
