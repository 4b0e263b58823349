#include <algorithm>
#include <bit>
#include <numeric>
#include <string_view>
#include <vector>

#include "fakequant/core/backend/transfer.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/detail/pool_sizes.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"

namespace fq::detail {
namespace {

using Moves = std::vector<Move>;

Tensor all_moved(Tensor x, const Moves& moves) {
  for (const auto& move : moves) x = moved(x, move);
  return x;
}

/// Moves the sums of x. Returns false, with x partly modified, if x has no sums with channels on axis 1.
bool move_sums(Accumulator& x, const Moves& moves) {
  const auto replace = [&](Tensor& tensor) {
    tensor = all_moved(tensor, moves);
    return true;
  };
  if (auto* product = std::get_if<ProductSums>(&x.value)) return product->axis == 1 && replace(product->sums);
  if (auto* normalized = std::get_if<NormalizedSums>(&x.value))
    return normalized->axis == 1 && replace(normalized->sums);
  if (auto* sums = std::get_if<PooledSums>(&x.value)) return replace(sums->sums);
  if (auto* averages = std::get_if<Averages>(&x.value)) return replace(averages->values);
  auto* concat = std::get_if<AccumulatorConcat>(&x.value);
  return concat != nullptr && concat->axis == 1 &&
         std::ranges::all_of(concat->parts, [&](Accumulator& part) { return move_sums(part, moves); });
}

/// Applies the moves one by one. Each of them keeps axes 0 and 1. Codes of one scale stay codes and sums per
/// channel stay such sums (`record_move` would defer their move); other values are converted to floats. Only
/// codes and floats may have negative indices in a TakeMove.
Variable move_beside_channels(std::string_view op, const Variable& x, Moves moves) {
  std::vector<Shape> shapes{x.shape()};
  for (const auto& move : moves) shapes.push_back(moved_shape(shapes.back(), move));
  const auto backward = [moves, shapes](Tensor dy) {
    for (std::size_t i = moves.size(); i-- > 0;) dy = moved_back(dy, moves[i], shapes[i]);
    return std::vector<Tensor>{dy};
  };
  if (const auto* codes = x.quantized(); codes != nullptr && is_movable(*codes))
    return record(op, with_codes(*codes, all_moved(codes->codes, moves)), {x}, backward);
  if (const auto* sums = x.accumulator()) {
    Accumulator out = *sums;
    if (move_sums(out, moves)) return record(op, std::move(out), {x}, backward);
  }
  const auto read = floats(x, op);
  return record(op, all_moved(read.tensor, moves), {read.variable}, backward);
}

}  // namespace
}  // namespace fq::detail

namespace fq::ops {
namespace {

using Places = std::vector<std::int64_t>;
using detail::PoolAxis;

/// Windows of a volume: its axes, and the indices of each window along each axis, tap after tap.
struct Windows {
  const Pool3d& options;
  std::vector<PoolAxis> axes;

  Windows(const Variable& x, const Pool3d& o, std::string_view op) : options(o) {
    FQ_CHECK(x.defined() && x.rank() == 5, op, "the input is {}: use [N, C, D, H, W]",
             x.defined() ? to_string(x.shape()) : "undefined");
    for (std::size_t i = 0; i < 3; ++i) {
      FQ_CHECK(o.dilation[i] >= 1, op, "dilation {} must be 1 or more", o.dilation[i]);
      axes.push_back(detail::pool_axis(x.shape(), o, i, (o.kernel[i] - 1) * o.dilation[i] + 1, op));
    }
  }

  /// Returns the index of a tap. Outside of the volume it is negative or not below the size.
  [[nodiscard]] std::int64_t place(std::size_t i, std::int64_t position, std::int64_t tap) const {
    return position * axes[i].stride - axes[i].before + tap * options.dilation[i];
  }
  /// Replaces a tap outside by the window's nearest tap inside, which changes no maximum. Throws if there is
  /// none.
  [[nodiscard]] Places clamped(std::size_t i, std::string_view op) const {
    Places out;
    const std::int64_t size = axes[i].size, step = options.dilation[i];
    for (std::int64_t position = 0; position < axes[i].positions; ++position)
      for (std::int64_t tap = 0; tap < options.kernel[i]; ++tap) {
        std::int64_t at = place(i, position, tap);
        const std::int64_t first = place(i, position, 0), last = place(i, position, options.kernel[i] - 1);
        while (at < 0 && at < last) at += step;
        while (at >= size && at > first) at -= step;
        FQ_CHECK(at >= 0 && at < size, op,
                 "a window of kernel {}, dilation {} and padding {} has no element of an axis of {}",
                 options.kernel[i], step, axes[i].before, size);
        out.push_back(at);
      }
    return out;
  }
  /// Sets taps outside to -1, and fills each window up to `taps` with -1.
  [[nodiscard]] Places open(std::size_t i, std::int64_t taps) const {
    Places out;
    for (std::int64_t position = 0; position < axes[i].positions; ++position)
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        const std::int64_t at = place(i, position, tap);
        out.push_back(tap < options.kernel[i] && at >= 0 && at < axes[i].size ? at : -1);
      }
    return out;
  }
  /// Returns the divisor of an average along an axis: elements inside the volume, or including the padding.
  [[nodiscard]] Places counts(std::size_t i) const {
    const std::int64_t before = options.count_include_pad ? axes[i].before : 0,
                       after = options.count_include_pad ? axes[i].after : 0;
    Places out;
    for (std::int64_t position = 0; position < axes[i].positions; ++position) {
      const std::int64_t first = position * axes[i].stride - axes[i].before;
      out.push_back(std::min(first + axes[i].reach, axes[i].size + after) - std::max(first, -before));
    }
    return out;
  }
  [[nodiscard]] bool are_whole() const {
    for (std::size_t i = 0; i < 3; ++i)
      for (const auto count : counts(i))
        if (count != options.kernel[i]) return false;
    return true;
  }
  [[nodiscard]] Attributes attributes() const {
    const auto list = [](const auto& from) { return Places(from.begin(), from.end()); };
    Places stride, before, after;
    bool ceil = false;
    for (const auto& a : axes) {
      stride.push_back(a.stride);
      before.push_back(a.before);
      after.push_back(a.after);
      ceil = ceil || (a.size + a.before + a.after - a.reach) / a.stride + 1 < a.positions;
    }
    return {
        {"kernel", list(options.kernel)},     {"stride", stride}, {"padding", before}, {"padding_end", after},
        {"dilation", list(options.dilation)}, {"ceil_mode", ceil}};
  }
};

/// Returns the rows of the planes of a volume, [D * H], that windows read: the rows of each slab in (d, h)
/// order.
Places plane_rows(const Windows& w, const Places& slabs, std::int64_t slab_taps, const Places& rows,
                  std::int64_t row_taps) {
  const std::int64_t high = w.axes[1].size;
  Places out;
  for (std::size_t i = 0; i < slabs.size(); i += static_cast<std::size_t>(slab_taps))
    for (std::size_t j = 0; j < rows.size(); j += static_cast<std::size_t>(row_taps))
      for (std::int64_t k = 0; k < slab_taps * row_taps; ++k) {
        const std::int64_t slab = slabs[i + static_cast<std::size_t>(k / row_taps)],
                           row = rows[j + static_cast<std::size_t>(k % row_taps)];
        out.push_back(slab < 0 || row < 0 ? -1 : slab * high + row);
      }
  return out;
}

/// Places the windows side by side in an image [N, C, rows, columns].
Variable unfolded(const Variable& x, Places rows, Places columns, std::string_view op) {
  const Shape s = x.shape();
  std::vector<Move> moves{ReshapeMove{{s[0], s[1], s[2] * s[3], s[4]}}, TakeMove{2, std::move(rows)}};
  Places all(static_cast<std::size_t>(s[4]));
  std::iota(all.begin(), all.end(), 0);
  if (columns != all) moves.push_back(TakeMove{3, std::move(columns)});
  return detail::move_beside_channels(op, x, std::move(moves));
}

/// Reshapes an image to the volume of its pixels.
Variable folded(const Variable& y, const Windows& w, std::string_view op) {
  return detail::move_beside_channels(
      op, y,
      {ReshapeMove{{y.dim(0), y.dim(1), w.axes[0].positions, w.axes[1].positions, w.axes[2].positions}}});
}

/// Averages windows with different divisors: divides t by a power of two, which is exact, then computes t /
/// n.
Variable divided(const Variable& x, const Windows& w, std::string_view op) {
  const auto& k = w.options.kernel;
  std::array<std::int64_t, 3> taps{};
  for (std::size_t i = 0; i < 3; ++i)
    taps[i] = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(k[i])));
  const Variable image = unfolded(x, plane_rows(w, w.open(0, taps[0]), taps[0], w.open(1, taps[1]), taps[1]),
                                  w.open(2, taps[2]), op);
  const Variable means = folded(avg_pool2d(image, {.kernel = {taps[0] * taps[1], taps[2]}}), w, op);
  std::vector<double> counts;
  for (const auto d : w.counts(0))
    for (const auto h : w.counts(1))
      for (const auto c : w.counts(2)) counts.push_back(static_cast<double>(d * h * c));
  const Shape shape{1, 1, w.axes[0].positions, w.axes[1].positions, w.axes[2].positions};
  const auto sums = detail::floats(scale(means, static_cast<double>(taps[0] * taps[1] * taps[2])), op);
  const Tensor divisors = detail::constant(Tensor::from(counts, shape).to(sums.tensor.dtype()), x.device());
  return div(sums.variable, Variable(divisors));
}

}  // namespace

Variable max_pool3d(const Variable& x, const Pool3d& o) {
  constexpr std::string_view op = "max_pool3d";
  const Windows w(x, o, op);
  Places rows = plane_rows(w, w.clamped(0, op), o.kernel[0], w.clamped(1, op), o.kernel[1]);
  auto attributes = detail::traced([&] { return w.attributes(); });
  return detail::composite(op, {x}, std::move(attributes), [&] {
    const Variable image = unfolded(x, std::move(rows), w.clamped(2, op), op);
    return folded(max_pool2d(image, {.kernel = {o.kernel[0] * o.kernel[1], o.kernel[2]}}), w, op);
  });
}

Variable avg_pool3d(const Variable& x, const Pool3d& o) {
  constexpr std::string_view op = "avg_pool3d";
  const Windows w(x, o, op);
  FQ_CHECK((o.dilation == std::array<std::int64_t, 3>{1, 1, 1}), op,
           "dilation is {}, {} and {}: average pooling requires 1", o.dilation[0], o.dilation[1],
           o.dilation[2]);
  auto attributes = detail::traced([&] {
    auto all = w.attributes();
    all.emplace_back("count_include_pad", o.count_include_pad);
    return all;
  });
  const auto* codes = x.quantized();
  const Variable read = codes != nullptr && detail::is_plain(*codes) ? x : detail::floats(x, op).variable;
  return detail::composite(op, {read}, std::move(attributes), [&] {
    if (!w.are_whole()) return divided(read, w, op);
    const auto& k = o.kernel;
    const Variable image =
        unfolded(read, plane_rows(w, w.open(0, k[0]), k[0], w.open(1, k[1]), k[1]), w.open(2, k[2]), op);
    return folded(avg_pool2d(image, {.kernel = {k[0] * k[1], k[2]}}), w, op);
  });
}

Variable global_avg_pool3d(const Variable& x) {
  constexpr std::string_view op = "global_avg_pool3d";
  FQ_CHECK(x.defined() && x.rank() == 5, op, "the input is {}: use [N, C, D, H, W]",
           x.defined() ? to_string(x.shape()) : "undefined");
  const Shape s = x.shape();
  const Variable read = x.quantized() != nullptr ? x : detail::floats(x, op).variable;
  return detail::composite(op, {read}, {}, [&] {
    const Variable image =
        detail::move_beside_channels(op, read, {ReshapeMove{{s[0], s[1], s[2] * s[3], s[4]}}});
    return detail::move_beside_channels(op, global_avg_pool2d(image), {ReshapeMove{{s[0], s[1], 1, 1, 1}}});
  });
}

Variable adaptive_avg_pool3d(const Variable& x, std::array<std::int64_t, 3> size) {
  constexpr std::string_view op = "adaptive_avg_pool3d";
  FQ_CHECK(x.defined() && x.rank() == 5, op, "the input is {}: use [N, C, D, H, W]",
           x.defined() ? to_string(x.shape()) : "undefined");
  Pool3d even;
  bool divides = true;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::int64_t from = x.dim(static_cast<int>(i) + 2);
    FQ_CHECK(size[i] >= 1 && from >= 1, op, "{} elements of an axis of {}: use 1 or more", size[i],
             to_string(x.shape()));
    divides = divides && from % size[i] == 0;
    even.kernel[i] = from / size[i];
  }
  if (divides) return avg_pool3d(x, even);
  const auto read = detail::floats(x, op);
  auto attributes = detail::traced([&] { return Attributes{{"size", Places(size.begin(), size.end())}}; });
  return detail::composite(op, {read.variable}, std::move(attributes), [&] {
    Variable y = read.variable;
    for (int i = 0; i < 3; ++i)
      y = detail::record_mix(op, detail::floats(y, op), i + 2,
                             detail::adaptive_shares(x.dim(i + 2), size[static_cast<std::size_t>(i)]));
    return y;
  });
}

}  // namespace fq::ops
