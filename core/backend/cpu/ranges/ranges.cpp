#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "fakequant/core/backend/cpu/ranges/range_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/blocks/detail/channels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"
#include "fakequant/core/numerics/detail/range_formulas.h"

namespace fq::cpu {
namespace {

constexpr std::int64_t kBlock = 1 << 14;

// Magnitudes as integers: NaN is larger than all other values and stays visible.
std::int32_t magnitude(float v) { return std::bit_cast<std::int32_t>(v) & 0x7fffffff; }

void block_amax(const float* x, std::int64_t begin, std::int64_t end, const Channels& view,
                std::int32_t* out) {
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t channel = view.at(i);
    if (view.inner == 1) {
      const std::int64_t count = std::min(end - i, view.channels - channel);
      raise_magnitudes(x + i, count, out + channel);
      i += count;
    } else {
      const std::int64_t count = std::min(end - i, view.inner - i % view.inner);
      out[channel] = std::max(out[channel], extremes(x + i, count).magnitude);
      i += count;
    }
  }
}

void channel_amax(const float* x, std::int64_t count, const Channels& view, std::int32_t* out) {
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  detail::FirstError error;
#pragma omp parallel if (blocks > 16)
  {
    // Maxima do not depend on the order, so threads merge in any order.
    std::vector<std::int32_t> own;
    const bool made = error.keep([&] { own.resize(static_cast<std::size_t>(view.channels)); });
#pragma omp for schedule(static) nowait
    for (std::int64_t b = 0; b < blocks; ++b)
      if (made) block_amax(x, b * kBlock, std::min(count, (b + 1) * kBlock), view, own.data());
#pragma omp critical(fakequant_channel_amax)
    for (std::size_t c = 0; c < own.size(); ++c) out[c] = std::max(out[c], own[c]);
  }
  error.rethrow();
}

/// Computes amax for any set of kept axes of a row-major tensor, with an index counter over the rows of the
/// last axis.
void axes_amax(const float* x, const Shape& shape, const Shape& kept, std::int32_t* out) {
  Shape stride(shape.size()), index(shape.size());
  std::int64_t step = 1;
  // `kept` has size 1 along reduced axes: their stride is 0.
  for (std::size_t a = shape.size(); a-- > 0; step *= kept[a]) stride[a] = kept[a] == 1 ? 0 : step;
  for (std::int64_t i = 0, at = 0, count = numel(shape); i < count; ++i) {
    out[at] = std::max(out[at], magnitude(x[i]));
    for (std::size_t a = shape.size(); a-- > 0;) {
      at += stride[a];
      if (++index[a] < shape[a]) break;
      at -= stride[a] * shape[a];
      index[a] = 0;
    }
  }
}

/// Processes whole blocks: no block has elements outside of [begin, end).
void raise_blocks(const float* x, std::int64_t begin, std::int64_t end, const detail::BlockMap& map,
                  std::int32_t* out) {
  const std::int64_t length = map.last.length, columns = map.last.size;
  // The usual cases have kernels: blocks along the last axis, and tiles with one block per column.
  if (map.consecutive() && length % 16 == 0)
    return block_magnitudes(x + begin, (end - begin) / length, length, out + begin / length);
  if (map.columns() && columns % 16 == 0) {
    const std::int64_t rows = map.outer[map.outer_axes - 1].length, tile = rows * columns;
    return column_magnitudes(x + begin, (end - begin) / tile, rows, columns, out + begin / tile * columns);
  }
  map.visit_runs(begin, end, [&](std::int64_t from, std::int64_t to, std::int64_t j, std::int64_t step) {
    if (step == 1) return raise_magnitudes(x + from, to - from, out + j);
    out[j] = std::max(out[j], extremes(x + from, to - from).magnitude);
  });
}

Extremes wider(const Extremes& a, const Extremes& b) {
  return {std::max(a.magnitude, b.magnitude), std::min(a.minimum, b.minimum)};
}

}  // namespace

Tensor amax(const Tensor& x, const Axes& kept, std::string_view function) {
  const auto axes = detail::kept_axes(kept, x.rank(), function);
  const Shape shape = detail::range_shape(x.shape(), axes);
  Tensor out = Tensor::zeros(shape);
  auto* bits = static_cast<std::int32_t*>(out.mutable_raw());
  // One kept axis, or none: channels, in any layout.
  if (axes.size() <= 1 || shape.empty()) {
    const int axis = axes.empty() || numel(shape) == 1 ? -1 : axes[0];
    channel_amax(x.data<float>(x.layout()), x.numel(), Channels::of(x.shape(), x.layout(), axis), bits);
  } else {
    axes_amax(x.to(Layout::row_major).data<float>(), x.shape(), shape, bits);
  }
  return out;
}

void block_amax(const Tensor& x, const Granularity& by, Tensor& out) {
  const float* values = x.data<float>(x.layout());
  auto* bits = static_cast<std::int32_t*>(out.mutable_raw());
  const std::int64_t count = x.numel(), chunks = (count + kBlock - 1) / kBlock;
  std::fill_n(bits, out.numel(), 0);
  if (out.numel() == 1) return channel_amax(values, count, Channels::of(x.shape(), x.layout(), -1), bits);
  const auto map = detail::BlockMap::of(x.shape(), by.block_shape(x.shape()), x.layout());
#pragma omp parallel for schedule(static) if (chunks > 16)
  for (std::int64_t c = 0; c < chunks; ++c) {
    // Chunks are cut between blocks, so that no two threads update one range.
    const std::int64_t begin = map.cut(c * kBlock), end = c + 1 == chunks ? count : map.cut((c + 1) * kBlock);
    if (begin < end) raise_blocks(values, begin, end, map, bits);
  }
}

detail::ValueRange range(const Tensor& x) {
  const float* v = x.data<float>(x.layout());
  const std::int64_t count = x.numel(), blocks = (count + kBlock - 1) / kBlock;
  Extremes all{0, v[0]};
#pragma omp parallel if (blocks > 16)
  {
    Extremes own{0, v[0]};
#pragma omp for schedule(static) nowait
    for (std::int64_t b = 0; b < blocks; ++b)
      own = wider(own, extremes(v + b * kBlock, std::min(kBlock, count - b * kBlock)));
#pragma omp critical(fakequant_range)
    all = wider(all, own);
  }
  // -0 + 0 = +0: the sign of a zero minimum would depend on the order.
  return {std::bit_cast<float>(all.magnitude), all.minimum + 0.0f};
}

void check_finite(const Tensor& amax, const std::string& nan, const std::string& infinity) {
  const auto* v = amax.data<float>(amax.layout());
  // One vector pass tests all ranges. Only an invalid one needs the loop.
  if (amax.numel() > 0 && std::isfinite(std::bit_cast<float>(extremes(v, amax.numel()).magnitude))) return;
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    if (!std::isfinite(v[i])) throw NumericError(std::isnan(v[i]) ? nan : infinity);
}

void use_ranges(const Tensor& amax, float least, float factor, Tensor& out) {
  const auto* from = amax.data<float>(amax.layout());
  auto* to = out.mutable_data<float>(out.layout());
  for (std::int64_t i = 0; i < out.numel(); ++i) to[i] = detail::used_range(from[i], least, factor);
}

void move_ranges(Tensor& amax, const Tensor& batch, float momentum) {
  const auto* from = batch.data<float>();
  auto* to = amax.mutable_data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i) to[i] = detail::moved_range(to[i], from[i], momentum);
}

void grow_ranges(Tensor& amax, const Tensor& batch, const Tensor& growing) {
  const auto* from = batch.data<float>();
  auto* to = amax.mutable_data<float>();
  const auto* grows = growing.data<float>();
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    if (grows[i] != 0) to[i] = detail::grown_range(to[i], from[i]);
}

}  // namespace fq::cpu
