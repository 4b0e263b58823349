#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/reader/folding/fold.h"

namespace fq::detail {
namespace {

/// Returns elements of `x` along an axis in the order of `picks`. The axis becomes the axes `shape`.
Tensor picked(const Fold& f, const Tensor& x, int axis, const std::vector<std::int64_t>& picks,
              const Shape& shape) {
  f.node.check(bit_width(x.dtype()) >= 8, "its data is {}", name(x.dtype()));
  Shape out_shape(x.shape().begin(), x.shape().begin() + axis);
  out_shape.insert(out_shape.end(), shape.begin(), shape.end());
  out_shape.insert(out_shape.end(), x.shape().begin() + axis + 1, x.shape().end());
  f.budget.take(f.node, numel(out_shape));
  Tensor out = Tensor::empty(out_shape, x.dtype());
  // x: [outer, size, inner], row-major. An element of the axis is a run of `inner` elements.
  const AxisView view = axis_view(x.shape(), axis);
  const auto run = static_cast<std::size_t>(view.inner * bit_width(x.dtype()) / 8);
  const auto* from = static_cast<const std::byte*>(x.raw());
  auto* to = static_cast<std::byte*>(out.mutable_raw());
  if (out.numel() == 0) return out;
  for (std::int64_t o = 0; o < view.outer; ++o)
    for (const auto pick : picks) {
      std::memcpy(to, from + static_cast<std::size_t>(o * view.size + pick) * run, run);
      to += run;
    }
  return out;
}

}  // namespace

std::vector<std::int64_t> slice_picks(const NodeReader& node, std::int64_t begin, std::int64_t end,
                                      std::int64_t step, std::int64_t size) {
  node.check(step != 0, "its step is 0");
  // As in ONNX: bounds are clamped, for a negative step to -1, the position before the first.
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto within = [&](std::int64_t at) { return std::clamp(at < 0 ? at + size : at, low, high); };
  // A longer step selects the same elements and could overflow.
  step = std::clamp<std::int64_t>(step, -size - 1, size + 1);
  std::vector<std::int64_t> picks;
  for (std::int64_t at = within(begin); step > 0 ? at < within(end) : at > within(end); at += step)
    picks.push_back(at);
  return picks;
}

Tensor fold_gather(const Fold& f) {
  const Tensor& x = f.input(0);
  const int axis = normalized_axes(f.node, {f.node.integer("axis", 0, -8, 8)}, x.rank())[0];
  const Tensor& indices = f.input(1);
  const std::int64_t size = x.dim(axis);
  // Indices of any rank are read as a list. Their shape replaces the axis.
  auto picks = integer_list(f.node, indices.reshape({-1}));
  for (auto& pick : picks) {
    if (pick < 0) pick += size;
    f.node.check(pick >= 0 && pick < size, "its index is outside of an axis of {}", size);
  }
  return picked(f, x, axis, picks, indices.shape());
}

Tensor fold_slice(const Fold& f) {
  Tensor x = f.input(0);
  const auto starts = f.list("starts", 1), ends = f.list("ends", 2), steps = f.list("steps", 4);
  auto given = f.list("axes", 3);
  if (given.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) given.push_back(static_cast<std::int64_t>(i));
  const auto axes = normalized_axes(f.node, given, x.rank());
  f.node.check(starts.size() == axes.size() && ends.size() == axes.size() &&
                   (steps.empty() || steps.size() == axes.size()),
               "it has {} starts, {} ends and {} axes", starts.size(), ends.size(), axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto picks = slice_picks(f.node, starts[i], ends[i], steps.empty() ? 1 : steps[i], x.dim(axes[i]));
    x = picked(f, x, axes[i], picks, {static_cast<std::int64_t>(picks.size())});
  }
  return x;
}

/// Replaces slices of the first input, at the indices in the second input, by slices of the third input.
Tensor fold_scatter_nd(const Fold& f) {
  const Tensor &x = f.input(0), &updates = f.input(2);
  const Tensor indices = f.input(1).to(DType::i64);
  f.node.check(f.node.text("reduction", "none") == "none", "it adds to existing elements ('reduction')");
  f.node.check(indices.rank() >= 1 && indices.dim(-1) <= x.rank() && updates.dtype() == x.dtype() &&
                   bit_width(x.dtype()) >= 8,
               "its indices are {}, its data {}", indices.describe(), x.describe());
  // indices: [.., axes], each row the position of a slice of `part` elements.
  const std::int64_t axes = indices.dim(-1), parts = axes == 0 ? 0 : indices.numel() / axes;
  const std::int64_t part = numel(Shape(x.shape().begin() + axes, x.shape().end()));
  f.node.check(updates.numel() == parts * part, "its updates are {}", updates.describe());
  f.budget.take(f.node, x.numel());
  Tensor out = x.clone();
  const auto bytes = static_cast<std::size_t>(part * bit_width(x.dtype()) / 8);
  const auto* from = static_cast<const std::byte*>(updates.raw());
  auto* to = static_cast<std::byte*>(out.mutable_raw());
  const auto* place = indices.data<std::int64_t>();
  for (std::int64_t i = 0; i < parts; ++i) {
    std::int64_t at = 0;
    for (int axis = 0; axis < axes; ++axis, ++place) {
      const std::int64_t size = x.dim(axis), index = *place < 0 ? *place + size : *place;
      f.node.check(index >= 0 && index < size, "its index {} is outside of an axis of {}", *place, size);
      at = at * size + index;
    }
    std::memcpy(to + static_cast<std::size_t>(at) * bytes, from + static_cast<std::size_t>(i) * bytes, bytes);
  }
  return out;
}

Tensor fold_tile(const Fold& f) {
  Tensor x = f.input(0);
  const auto repeats = integer_list(f.node, f.input(1));
  f.node.check(std::ssize(repeats) == x.rank(), "it has {} repeats of {}", repeats.size(), x.describe());
  for (int axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t size = x.dim(axis), times = repeats[static_cast<std::size_t>(axis)];
    f.node.check(times >= 0 && times <= kLargestSize, "it repeats an axis {} times", times);
    // Limits the list of positions, which is built before `picked` counts the result.
    f.budget.take(f.node, x.numel() == 0 ? 0 : times);
    std::vector<std::int64_t> picks;
    for (std::int64_t i = 0; i < times; ++i)
      for (std::int64_t k = 0; k < size; ++k) picks.push_back(k);
    x = picked(f, x, axis, picks, {static_cast<std::int64_t>(picks.size())});
  }
  return x;
}

Tensor fold_concat(const Fold& f) {
  std::vector<Variable> parts;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < f.inputs.size(); ++i) {
    f.node.check(f.input(i).dtype() == f.input(0).dtype(), "its inputs are of several types");
    parts.emplace_back(computable(f.input(i)));
    count += f.input(i).numel();
  }
  f.node.check(!parts.empty(), "it has no inputs");
  f.budget.take(f.node, count);
  const int axis = normalized_axes(f.node, {f.node.integer("axis", 0, -8, 8)}, f.input(0).rank())[0];
  return ops::concat(parts, axis).tensor().to(f.input(0).dtype());
}

Tensor fold_transpose(const Fold& f) {
  const Tensor& x = f.input(0);
  auto order = f.node.integers("perm");
  if (order.empty())
    for (int i = x.rank() - 1; i >= 0; --i) order.push_back(i);
  const auto axes = normalized_axes(f.node, order, x.rank());
  f.node.check(static_cast<int>(axes.size()) == x.rank(), "it orders {} of {} axes", axes.size(), x.rank());
  f.budget.take(f.node, x.numel());
  return ops::transpose(Variable(computable(x)), axes).tensor().to(x.dtype());
}

Tensor fold_reshape(const Fold& f) {
  const Tensor& x = f.input(0);
  Shape shape = f.list("shape", 1);
  const bool zeros = f.node.integer("allowzero", 0, 0, 1) == 1;
  for (std::size_t i = 0; i < shape.size(); ++i)
    // 0 copies the size of the input unless 'allowzero' is set.
    if (shape[i] == 0 && !zeros) shape[i] = x.dim(static_cast<int>(i));
  return x.reshape(shape);
}

Tensor fold_unsqueeze(const Fold& f) {
  const Tensor& x = f.input(0);
  const auto given = f.list("axes", 1);
  const auto axes =
      normalized_axes(f.node, given, x.rank() + static_cast<int>(std::min<std::size_t>(given.size(), 8)));
  Shape shape = x.shape();
  std::set<int> sorted(axes.begin(), axes.end());
  // Ascending order, because axes count in the shape of the result.
  for (const int axis : sorted) shape.insert(shape.begin() + axis, 1);
  return x.reshape(shape);
}

Tensor fold_squeeze(const Fold& f) {
  const Tensor& x = f.input(0);
  const auto axes = normalized_axes(f.node, f.list("axes", 1), x.rank());
  Shape shape;
  for (int i = 0; i < x.rank(); ++i)
    if (x.dim(i) != 1 || (!axes.empty() && std::ranges::find(axes, i) == axes.end()))
      shape.push_back(x.dim(i));
  return x.reshape(shape);
}

void check_parts(const NodeReader& node, std::int64_t parts) {
  const auto given = node.integer("num_outputs", parts, 1, kLargestSize);
  node.check(given == parts, "attribute 'num_outputs' is {}: it has {} outputs", given, parts);
}

Tensor fold_flatten(const Fold& f) {
  const Tensor& x = f.input(0);
  const std::int64_t given = f.node.integer("axis", 1, -x.rank(), x.rank());
  const auto middle = x.shape().begin() + (given < 0 ? given + x.rank() : given);
  return x.reshape({numel(Shape(x.shape().begin(), middle)), numel(Shape(middle, x.shape().end()))});
}

std::vector<Tensor> fold_split(const Fold& f, std::size_t parts) {
  const Tensor& x = f.input(0);
  const int axis = normalized_axes(f.node, {f.node.integer("axis", 0, -8, 8)}, x.rank())[0];
  const auto count = static_cast<std::int64_t>(parts);
  check_parts(f.node, count);
  // Without sizes the parts are equal, the last one may be smaller.
  const std::int64_t size = x.dim(axis), each = (size + count - 1) / count;
  std::vector<std::int64_t> sizes = f.list("split", 1);
  if (sizes.empty())
    for (std::int64_t i = 0; i < count; ++i) sizes.push_back(std::min(each, size - i * each));
  f.node.check(sizes.size() == parts, "it has {} sizes for {} parts", sizes.size(), parts);
  std::vector<Tensor> out;
  std::int64_t begin = 0;
  for (const std::int64_t part : sizes) {
    f.node.check(part >= 0 && part <= size - begin, "its parts {} do not fit an axis of {}", to_string(sizes),
                 size);
    std::vector<std::int64_t> picks(static_cast<std::size_t>(part));
    std::iota(picks.begin(), picks.end(), begin);
    out.push_back(picked(f, x, axis, picks, {part}));
    begin += part;
  }
  return out;
}

}  // namespace fq::detail
