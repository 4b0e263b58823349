#include "fakequant/core/join.h"

#include <cstring>

#include "fakequant/core/check.h"

namespace fq::detail {
namespace {

/// outer blocks of size * inner elements in memory order around a logical axis.
AxisView memory_view(const Shape& shape, Layout layout, int axis) {
  if (layout == Layout::row_major) return axis_view(shape, axis);
  constexpr int position[] = {0, 3, 1, 2};
  return axis_view({shape[0], shape[2], shape[3], shape[1]}, position[axis]);
}

/// Copies `length` indices of the axis from index `from` of x to index `to` of y.
void copy_range(const Tensor& x, std::int64_t from, Tensor& y, std::int64_t to, std::int64_t length, int axis) {
  const auto a = memory_view(x.shape(), x.layout(), axis), b = memory_view(y.shape(), y.layout(), axis);
  const auto element = byte_size(x.dtype(), 1);
  const auto* in = static_cast<const std::byte*>(x.raw());
  auto* out = static_cast<std::byte*>(y.mutable_raw());
  for (std::int64_t o = 0; o < a.outer; ++o)
    std::memcpy(out + (o * b.size + to) * b.inner * element, in + (o * a.size + from) * a.inner * element,
                static_cast<std::size_t>(length * a.inner * element));
}

}  // namespace

Tensor join(const std::vector<Tensor>& parts, int axis) {
  FQ_CHECK(!parts.empty(), "concat", "there is nothing to join");
  const auto at = static_cast<std::size_t>(normalize_axis(axis, parts[0].rank(), "concat"));
  Shape shape = parts[0].shape();
  shape[at] = 0;
  for (const auto& part : parts) {
    Shape other = part.shape();
    FQ_CHECK(other.size() == shape.size() && part.dtype() == parts[0].dtype(), "concat", "{} does not join with {}",
             part.describe(), parts[0].describe());
    shape[at] += other[at];
    other[at] = shape[at];
    FQ_CHECK(other == shape, "concat", "{} and {} differ on an axis other than {}", to_string(part.shape()),
             to_string(parts[0].shape()), axis);
  }
  Tensor out = Tensor::empty(shape, parts[0].dtype(), parts[0].device(), parts[0].layout());
  if (!out.device().is_cpu() || out.numel() == 0) return out;
  std::int64_t to = 0;
  for (const auto& part : parts) {
    const Tensor same = part.to(out.layout());
    copy_range(same, 0, out, to, same.shape()[at], static_cast<int>(at));
    to += same.shape()[at];
  }
  return out;
}

Tensor cut(const Tensor& x, int axis, std::int64_t begin, std::int64_t end) {
  const int at = normalize_axis(axis, x.rank(), "slice");
  FQ_CHECK(0 <= begin && begin <= end && end <= x.dim(at), "slice", "{} to {} is not within axis {} of {}", begin, end,
           at, to_string(x.shape()));
  Shape shape = x.shape();
  shape[static_cast<std::size_t>(at)] = end - begin;
  Tensor out = Tensor::empty(shape, x.dtype(), x.device(), x.layout());
  if (out.device().is_cpu() && out.numel() > 0) copy_range(x, begin, out, 0, end - begin, at);
  return out;
}

}  // namespace fq::detail
