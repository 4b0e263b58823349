#include "fakequant/core/detail/moves.h"

#include <utility>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/blocks/detail/walk.h"
#include "fakequant/core/detail/check.h"

namespace fq {
namespace {

std::size_t axis_index(int axis) { return static_cast<std::size_t>(axis); }

Tensor reshaped(const Tensor& x, const Shape& shape) { return x.to(Layout::row_major).reshape(shape); }

Tensor permuted(const Tensor& x, const PermuteMove& move) {
  Tensor y = Tensor::empty(moved_shape(x.shape(), move), x.dtype(), x.device());
  detail::run(y.device(), &detail::Kernels::permute, x, move.axes, y);
  return y;
}

Tensor taken(const Tensor& x, const TakeMove& move) {
  Tensor y = Tensor::empty(moved_shape(x.shape(), move), x.dtype(), x.device(), x.layout());
  detail::run(y.device(), &detail::Kernels::take, x, move.axis, move.from, 0.0, y);
  return y;
}

/// Returns the gradient of TakeMove: each element gets the sum over its copies.
Tensor take_gradient(const Tensor& dy, const TakeMove& move, const Shape& shape) {
  Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device(), dy.layout());
  const auto mix = detail::AxisMix::of(move.from).transposed(shape[axis_index(move.axis)]);
  detail::run(dx.device(), &detail::Kernels::mix, dy, move.axis, mix, dx);
  return dx;
}

PermuteMove inverse(const PermuteMove& move) {
  PermuteMove out{std::vector<int>(move.axes.size())};
  for (std::size_t i = 0; i < move.axes.size(); ++i) out.axes[axis_index(move.axes[i])] = static_cast<int>(i);
  return out;
}

/// Returns zeros of the given shape with dy at the position of the cut.
Tensor cut_gradient(const Tensor& dy, const CutMove& move, const Shape& shape) {
  const auto zeros = [&](std::int64_t size) {
    Shape side = shape;
    side[axis_index(move.axis)] = size;
    return Tensor::zeros(side, dy.dtype(), dy.device(), dy.layout());
  };
  return detail::join({zeros(move.begin), dy, zeros(shape[axis_index(move.axis)] - move.end)}, move.axis);
}

struct ShapeOf {
  Shape shape;

  Shape operator()(const ReshapeMove& move) const { return move.shape; }
  Shape operator()(const PermuteMove& move) const {
    Shape out;
    for (const int axis : move.axes) out.push_back(shape[axis_index(axis)]);
    return out;
  }
  Shape operator()(const CutMove& move) const {
    Shape out = shape;
    out[axis_index(move.axis)] = move.end - move.begin;
    return out;
  }
  Shape operator()(const TakeMove& move) const {
    Shape out = shape;
    out[axis_index(move.axis)] = static_cast<std::int64_t>(move.from.size());
    return out;
  }
};

struct Moved {
  const Tensor& x;

  Tensor operator()(const ReshapeMove& move) const { return reshaped(x, move.shape); }
  Tensor operator()(const PermuteMove& move) const { return permuted(x, move); }
  Tensor operator()(const CutMove& move) const { return detail::cut(x, move.axis, move.begin, move.end); }
  Tensor operator()(const TakeMove& move) const { return taken(x, move); }
};

// The transpose of each move as a matrix of zeros and ones. It adds only where a TakeMove copied an element,
// so all other gradients are exact.
struct MovedBack {
  const Tensor& dy;
  const Shape& shape;

  Tensor operator()(const ReshapeMove&) const { return reshaped(dy, shape); }
  Tensor operator()(const PermuteMove& move) const { return permuted(dy, inverse(move)); }
  Tensor operator()(const CutMove& move) const { return cut_gradient(dy, move, shape); }
  Tensor operator()(const TakeMove& move) const { return take_gradient(dy, move, shape); }
};

}  // namespace

Shape moved_shape(const Shape& shape, const Move& move) { return std::visit(ShapeOf{shape}, move); }
Layout moved_layout(Layout layout, const Move& move) {
  const bool in_place = std::holds_alternative<CutMove>(move) || std::holds_alternative<TakeMove>(move);
  // Reshapes and permutations follow the logical order. Their kernels write row-major.
  return in_place ? layout : Layout::row_major;
}
Tensor moved(const Tensor& x, const Move& move) { return std::visit(Moved{x}, move); }
Tensor moved_back(const Tensor& dy, const Move& move, const Shape& shape) {
  return std::visit(MovedBack{dy, shape}, move);
}

}  // namespace fq

namespace fq::detail {
namespace {

/// Clears the unused bits after the last element of a packed type.
void clear_last_byte(Tensor& out) {
  if (bit_width(out.dtype()) >= 8) return;
  auto* last = static_cast<std::byte*>(out.mutable_raw()) + out.nbytes() - 1;
  run(out.device(), &Kernels::fill_bytes, last, 0, std::size_t{1}, out.device());
}

/// Returns the copy of `length` indices of the axis from index `from` of x to index `to` of y.
RunCopy range_copy(const Tensor& x, std::int64_t from, Tensor& y, std::int64_t to, std::int64_t length,
                   int axis) {
  // In memory order a range of an axis is `outer` runs of contiguous bits, in any layout and for packed
  // elements.
  const auto a = memory_view(x.shape(), x.layout(), axis), b = memory_view(y.shape(), y.layout(), axis);
  const std::int64_t bits = bit_width(x.dtype());
  const StridedBits copy{a.outer,
                         length * a.inner * bits,
                         from * a.inner * bits,
                         a.size * a.inner * bits,
                         to * b.inner * bits,
                         b.size * b.inner * bits};
  return {copy, x.raw(), y.mutable_raw()};
}

/// Runs the copies that have elements.
void copy_runs(std::vector<RunCopy> copies, Device device) {
  std::erase_if(copies, [](const RunCopy& copy) { return copy.bits.runs * copy.bits.count == 0; });
  if (!copies.empty()) run(device, &Kernels::copy_runs, copies, device);
}

}  // namespace

Tensor join(const std::vector<Tensor>& parts, int axis) {
  FQ_CHECK(!parts.empty(), "concat", "no tensors are given: use at least one");
  const auto at = static_cast<std::size_t>(normalize_axis(axis, parts[0].rank(), "concat"));
  Shape shape = parts[0].shape();
  shape[at] = 0;
  for (const auto& part : parts) {
    Shape other = part.shape();
    FQ_CHECK(other.size() == shape.size() && part.dtype() == parts[0].dtype() &&
                 part.device() == parts[0].device(),
             "concat", "{} and {} cannot be joined", part.describe(), parts[0].describe());
    shape[at] += other[at];
    other[at] = shape[at];
    FQ_CHECK(other == shape, "concat", "{} and {} differ on an axis other than {}", to_string(part.shape()),
             to_string(parts[0].shape()), axis);
  }
  Tensor out = Tensor::empty(shape, parts[0].dtype(), parts[0].device(), parts[0].layout());
  if (out.device().is_meta() || out.numel() == 0) return out;
  clear_last_byte(out);
  std::int64_t to = 0;
  std::vector<Tensor> same;  // until the copies run
  std::vector<RunCopy> copies;
  for (const auto& part : parts) {
    const Tensor& from = same.emplace_back(part.to(out.layout()));
    copies.push_back(range_copy(from, 0, out, to, from.shape()[at], static_cast<int>(at)));
    to += from.shape()[at];
  }
  copy_runs(std::move(copies), out.device());
  return out;
}

Tensor cut(const Tensor& x, int axis, std::int64_t begin, std::int64_t end) {
  const int at = normalize_axis(axis, x.rank(), "slice");
  FQ_CHECK(0 <= begin && begin <= end && end <= x.dim(at), "slice", "{} to {} is not within axis {} of {}",
           begin, end, at, to_string(x.shape()));
  Shape shape = x.shape();
  shape[static_cast<std::size_t>(at)] = end - begin;
  Tensor out = Tensor::empty(shape, x.dtype(), x.device(), x.layout());
  if (out.device().is_meta() || out.numel() == 0) return out;
  clear_last_byte(out);
  copy_runs({range_copy(x, begin, out, 0, end - begin, at)}, out.device());
  return out;
}

std::vector<Tensor> split_rows(const Tensor& x, const std::vector<std::int64_t>& rows) {
  std::vector<Tensor> out;
  std::int64_t first = 0;
  for (const std::int64_t count : rows) {
    out.push_back(x.slice(first, first + count));
    first += count;
  }
  return out;
}

Tensor adjacent_rows(const std::vector<Tensor>& parts) {
  const Tensor& first = parts.at(0);
  if (!first.defined() || first.rank() == 0 || first.numel() == 0 || first.raw() == nullptr) return {};
  Shape shape = first.shape();
  shape[0] = 0;
  const auto* next = static_cast<const std::byte*>(first.raw());
  for (const auto& part : parts) {
    Shape other = part.shape();
    const bool follows = part.rank() == first.rank() && part.dtype() == first.dtype() &&
                         part.layout() == Layout::row_major && part.storage().shares(first.storage()) &&
                         part.raw() == next && part.numel() * bit_width(part.dtype()) % 8 == 0;
    if (!follows) return {};
    next += part.nbytes();
    shape[0] += std::exchange(other[0], shape[0] + other[0]);
    if (other != shape) return {};
  }
  // The view keeps the parts, and with them the storage.
  auto* begin = const_cast<void*>(first.raw());  // NOLINT(cppcoreguidelines-pro-type-const-cast): not written
  return Tensor::borrow(
      begin, shape, first.dtype(), [parts] {}, first.device());
}

}  // namespace fq::detail
