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

/// Copies `count` elements of fewer than 8 bits, from and to any bit.
void copy_bits(const std::byte* in, std::int64_t from, std::byte* out, std::int64_t to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bit = in[(from + i) / 8] >> ((from + i) % 8) & std::byte{1};
    auto& target = out[(to + i) / 8];
    target = (target & ~(std::byte{1} << ((to + i) % 8))) | (bit << ((to + i) % 8));
  }
}

/// Copies `length` indices of the axis from index `from` of x to index `to` of y.
void copy_range(const Tensor& x, std::int64_t from, Tensor& y, std::int64_t to, std::int64_t length,
                int axis) {
  const auto a = memory_view(x.shape(), x.layout(), axis), b = memory_view(y.shape(), y.layout(), axis);
  const std::int64_t bits = bit_width(x.dtype());
  const auto* in = static_cast<const std::byte*>(x.raw());
  auto* out = static_cast<std::byte*>(y.mutable_raw());
  for (std::int64_t o = 0; o < a.outer; ++o) {
    const std::int64_t source = (o * a.size + from) * a.inner * bits,
                       target = (o * b.size + to) * b.inner * bits, count = length * a.inner * bits;
    if ((source | target | count) % 8 == 0)
      std::memcpy(out + target / 8, in + source / 8, static_cast<std::size_t>(count / 8));
    else
      copy_bits(in, source, out, target, count);
  }
}

}  // namespace

Tensor join(const std::vector<Tensor>& parts, int axis) {
  FQ_CHECK(!parts.empty(), "concat", "there is nothing to join");
  const auto at = static_cast<std::size_t>(normalize_axis(axis, parts[0].rank(), "concat"));
  Shape shape = parts[0].shape();
  shape[at] = 0;
  for (const auto& part : parts) {
    Shape other = part.shape();
    FQ_CHECK(other.size() == shape.size() && part.dtype() == parts[0].dtype(), "concat",
             "{} does not join with {}", part.describe(), parts[0].describe());
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
  FQ_CHECK(0 <= begin && begin <= end && end <= x.dim(at), "slice", "{} to {} is not within axis {} of {}",
           begin, end, at, to_string(x.shape()));
  Shape shape = x.shape();
  shape[static_cast<std::size_t>(at)] = end - begin;
  Tensor out = Tensor::empty(shape, x.dtype(), x.device(), x.layout());
  if (out.device().is_cpu() && out.numel() > 0) copy_range(x, begin, out, 0, end - begin, at);
  return out;
}

}  // namespace fq::detail
