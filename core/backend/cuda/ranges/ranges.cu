#include <limits>

#include "fakequant/core/backend/cuda/loops/atomics.cuh"
#include "fakequant/core/backend/cuda/loops/channels.cuh"
#include "fakequant/core/backend/cuda/loops/map.cuh"
#include "fakequant/core/backend/cuda/loops/range_rows.cuh"
#include "fakequant/core/backend/cuda/loops/reduce.cuh"
#include "fakequant/core/backend/cuda/loops/row_blocks.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/numerics/detail/range_formulas.h"

namespace fq::cuda {
namespace {

/// Returns |v| as an integer. NaN is then larger than all other values and stays visible.
FQ_HD std::int32_t magnitude(float v) { return std::bit_cast<std::int32_t>(v) & 0x7fffffff; }
FQ_HD std::int32_t larger(std::int32_t a, std::int32_t b) { return a < b ? b : a; }
FQ_HD float smaller(float a, float b) { return b < a ? b : a; }

/// Largest magnitude of single elements, or of groups of eight.
template <int size>
struct LargestMagnitude {
  using Sum = std::int32_t;
  const float* x;
  std::int64_t count;

  FQ_HD Sum zero() const { return 0; }
  FQ_HD void add(Sum& most, std::int64_t i, std::int64_t) const {
    if constexpr (size == 1) return join(most, magnitude(x[i]));
    float v[group_size];
    const std::int64_t left = count - i * group_size;
    load_group(x + i * group_size, left < group_size ? static_cast<int>(left) : group_size, v);
    for (float each : v) join(most, magnitude(each));
  }
  FQ_HD void join(Sum& most, Sum other) const { most = larger(most, other); }
};

struct PutMagnitude {
  std::int32_t* to;
  FQ_HD void operator()(std::int64_t channel, std::int32_t most) const { to[channel] = most; }
};

struct Magnitude {
  FQ_HD std::int32_t operator()(float v) const { return magnitude(v); }
};
struct Larger {
  FQ_HD std::int32_t operator()(std::int32_t a, std::int32_t b) const { return larger(a, b); }
};

struct Ends {
  std::int32_t magnitude;
  float minimum;
};
struct EndsOf {
  FQ_HD Ends operator()(float v) const { return {magnitude(v), v}; }
};
struct JoinEnds {
  FQ_HD Ends operator()(const Ends& a, const Ends& b) const {
    return {larger(a.magnitude, b.magnitude), smaller(a.minimum, b.minimum)};
  }
};

/// Handles any set of kept axes: the second operand of the walk is the range of an element.
struct RaiseMagnitudes {
  const float* x;
  std::int32_t* out;
  Strides walk;

  FQ_HD void raise(std::int64_t at, std::int32_t most) const {
    // Reading first avoids most atomic operations: a maximum soon stops growing.
    if (out[at] < most) atomic_raise(out[at], most);
  }
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    load_group(x + first, count, v);
    std::int64_t at = walk.offset(1, first);
    std::int32_t most = 0;
    for (int j = 0; j < group_size; ++j) {
      if (j >= count) break;
      const std::int64_t next = walk.offset(1, first + j);
      // Consecutive elements often share a range: one atomic operation for a run of them.
      if (next != at) raise(at, most);
      most = next == at ? larger(most, magnitude(v[j])) : magnitude(v[j]);
      at = next;
    }
    raise(at, most);
  }
};

/// Computes one range per short row.
struct RowMagnitudes {
  static constexpr int phases = 1 + join_phases;
  static constexpr std::int64_t longest = std::int64_t{group_size} * block_threads;
  struct Shared {
    std::int32_t most[block_threads];
  };
  RowBlocks shape;
  const float* x;
  std::int32_t* out;

  template <int Phase>
  FQ_HD void phase(Thread t, Shared& shared) const {
    const auto p = shape.place(t);
    if (p.row >= shape.rows) return;
    const auto join = [](std::int32_t& a, std::int32_t b) { a = larger(a, b); };
    if (Phase == 0) {
      std::int32_t most = 0;
      visit_lane(shape, p.lane, [&](std::int64_t first, int count) {
        float v[group_size];
        load_group(x + p.row * shape.length + first, count, v);
        for (float each : v) join(most, magnitude(each));
      });
      shared.most[t.thread] = most;
    }
    if constexpr (Phase > 0) join_lanes<Phase - 1>(shape, p, shared.most, join);
    if (Phase == join_phases && p.lane == 0) out[p.row] = shared.most[p.first];
  }
};

/// Computes one range per thread.
struct BlockMagnitudes {
  const float* x;
  std::int32_t* out;
  fq::detail::BlockMap blocks;
  FQ_HD void operator()(std::int64_t block) const {
    std::int32_t most = 0;
    for (std::int64_t k = 0; k < blocks.length(); ++k)
      if (const std::int64_t i = blocks.element(block, k); i >= 0) most = larger(most, magnitude(x[i]));
    out[block] = most;
  }
};

// The axis with a nonzero step in the ranges is the kept axis. `inner` is the product of the axes after it.
/// Returns the view for at most one kept axis.
ChannelView channel_view(const Strides& walk, std::int64_t count) {
  ChannelView view{1, 1, count};
  for (int axis = walk.rank - 1; axis >= 0; --axis) {
    if (walk.steps[1][axis] != 0) return {walk.sizes[axis].value, view.inner, count};
    view.inner *= walk.sizes[axis].value;
  }
  return view;
}

/// Computes the amax of channels, in groups if the elements of a channel are whole groups.
void channel_amax(const Tensor& x, const ChannelView& view, std::int32_t* out) {
  const std::int64_t count = x.numel();
  const PutMagnitude put{out};
  if (view.channels == 1)
    return reduce_all(x.device(), device_data<float>(x), count, Magnitude{}, Larger{}, std::int32_t{0}, out);
  // Rows of consecutive elements: weights per output channel, or blocks of NVFP4.
  if (view.channels * view.inner == count && view.inner <= RowMagnitudes::longest) {
    const auto shape = RowBlocks::of(view.channels, view.inner);
    return launch_blocks(x.device(), shape.blocks(), RowMagnitudes{shape, device_data<float>(x), out});
  }
  if (view.inner % group_size == 0)
    return reduce_channels(x.device(), {view.channels, view.inner / group_size, count / group_size},
                           LargestMagnitude<group_size>{device_data<float>(x), count}, put);
  reduce_channels(x.device(), {view.channels, view.inner, count},
                  LargestMagnitude<1>{device_data<float>(x), count}, put);
}

// Reports on the device: reading the ranges back would wait for it.
struct CheckFinite {
  const float* amax;
  Alarm nan, infinity;
  FQ_HD void operator()(std::int64_t first, int count) const {
    float v[group_size];
    load_group(amax + first, count, v);
    for (float each : v)
      if (!fq::detail::is_range(each)) raise(each != each ? nan : infinity);
  }
};

struct UseRange {
  float least, factor;
  FQ_HD float operator()(float amax) const { return fq::detail::used_range(amax, least, factor); }
};

struct MoveRange {
  float momentum;
  FQ_HD float operator()(float amax, float batch) const {
    return fq::detail::moved_range(amax, batch, momentum);
  }
};

struct GrowRange {
  const float *batch, *growing;
  float* amax;
  FQ_HD void operator()(std::int64_t i) const {
    if (growing[i] != 0) amax[i] = fq::detail::grown_range(amax[i], batch[i]);
  }
};

}  // namespace

Tensor amax(const Tensor& x, const Axes& kept, std::string_view function) {
  const auto axes = fq::detail::kept_axes(kept, x.rank(), function);
  const Shape shape = fq::detail::range_shape(x.shape(), axes);
  Tensor out = Tensor::zeros(shape, DType::f32, x.device());
  auto* bits = mutable_device_data<std::int32_t>(out);
  const Strides walk = range_walk(x, shape);
  if (axes.size() <= 1 || shape.empty())
    channel_amax(x, channel_view(walk, x.numel()), bits);
  else
    launch_groups(x.device(), x.numel(), RaiseMagnitudes{device_data<float>(x), bits, walk});
  return out;
}

void block_amax(const Tensor& x, const Granularity& by, Tensor& out) {
  auto* bits = mutable_device_data<std::int32_t>(out);
  const auto map = fq::detail::BlockMap::of(x.shape(), by.block_shape(x.shape()), x.layout());
  if (map.consecutive()) return channel_amax(x, {out.numel(), map.last.length, x.numel()}, bits);
  launch_each(x.device(), out.numel(), BlockMagnitudes{device_data<float>(x), bits, map});
}

fq::detail::ValueRange range(const Tensor& x) {
  Tensor found = Tensor::empty({2}, DType::f32, x.device());
  reduce_all(x.device(), device_data<float>(x), x.numel(), EndsOf{}, JoinEnds{},
             Ends{0, std::numeric_limits<float>::infinity()}, mutable_device_data<Ends>(found));
  const auto ends = found.to_vector<float>();
  // -0 + 0 = +0: the sign of a zero minimum would depend on the order.
  return {ends[0], ends[1] + 0.0f};
}

void check_finite(const Tensor& amax, const std::string& nan, const std::string& infinity) {
  const Device device = amax.device();
  launch_groups(device, amax.numel(),
                CheckFinite{device_data<float>(amax), alarm(device, nan), alarm(device, infinity)});
}

void use_ranges(const Tensor& amax, float least, float factor, Tensor& out) {
  map<float>(amax, out, UseRange{least, factor});
}

void move_ranges(Tensor& amax, const Tensor& batch, float momentum) {
  map<float>(amax, batch, amax, MoveRange{momentum});
}

void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing) {
  launch_each(
      amax.device(), amax.numel(),
      GrowRange{device_data<float>(batch), device_data<float>(growing), updated_device_data<float>(amax)});
}

}  // namespace fq::cuda
