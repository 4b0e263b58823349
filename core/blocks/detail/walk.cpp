#include "fakequant/core/blocks/detail/walk.h"

namespace fq::cpu {

std::vector<std::int64_t> axis_strides(const Shape& shape, Layout layout) {
  if (layout == Layout::channels_last)
    return {shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]};
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

std::vector<std::int64_t> broadcast_strides(const Shape& shape, Layout layout, const Shape& out) {
  const auto own = axis_strides(shape, layout);
  const std::size_t missing = out.size() - shape.size();
  std::vector<std::int64_t> strides(out.size(), 0);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1) strides[missing + i] = own[i];
  return strides;
}

Walk::Walk(const Shape& shape, Layout layout, std::array<std::vector<std::int64_t>, 2> strides) {
  std::vector<std::size_t> order(shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (layout == Layout::channels_last) order = {0, 2, 3, 1};
  // Axes are visited from the outermost to the innermost in memory. An axis merges into the one before it if
  // one step there equals `size` steps here, in both operands. Fewer and longer rows remain, which suit
  // vector loops.
  for (const std::size_t axis : order) {
    const std::int64_t size = shape[axis];
    if (size == 1) continue;
    bool merge = !dims_.empty();
    for (std::size_t k = 0; k < 2 && merge; ++k) merge = strides_[k].back() == strides[k][axis] * size;
    if (merge)
      dims_.back() *= size;
    else
      dims_.push_back(size);
    for (std::size_t k = 0; k < 2; ++k) {
      if (merge)
        strides_[k].back() = strides[k][axis];
      else
        strides_[k].push_back(strides[k][axis]);
    }
  }
  if (dims_.empty()) {
    dims_ = {1};
    strides_ = {std::vector<std::int64_t>{1}, std::vector<std::int64_t>{1}};
  }
  for (std::size_t i = 0; i + 1 < dims_.size(); ++i) rows_ *= dims_[i];
}

// Leading axes with stride 0 repeat the operand: it starts again after the elements of the other axes.
std::int64_t Walk::period(std::size_t operand) const noexcept {
  std::size_t axis = 0;
  while (axis < dims_.size() && strides_[operand][axis] == 0) ++axis;
  std::int64_t elements = 1;
  for (; axis < dims_.size(); ++axis) elements *= dims_[axis];
  return elements;
}

Walk broadcast_walk(const Placed& a, const Placed& b, const Placed& y) {
  return {y.shape,
          y.layout,
          {broadcast_strides(a.shape, a.layout, y.shape), broadcast_strides(b.shape, b.layout, y.shape)}};
}

Walk sum_walk(const Placed& x, const Shape& out) {
  return {x.shape,
          x.layout,
          {broadcast_strides(out, Layout::row_major, x.shape), axis_strides(x.shape, x.layout)}};
}

Walk permute_walk(const Placed& x, const std::vector<int>& axes, const Shape& y) {
  const auto own = axis_strides(x.shape, x.layout);
  std::vector<std::int64_t> strides;
  for (const int axis : axes) strides.push_back(own[static_cast<std::size_t>(axis)]);
  return {y, Layout::row_major, {strides, axis_strides(y, Layout::row_major)}};
}

}  // namespace fq::cpu
