#include "fakequant/core/join.h"

#include <algorithm>
#include <cstring>

#include "fakequant/core/check.h"
#include "fakequant/core/memory_view.h"

namespace fq::detail {
namespace {

/// Copies `count` bits, from and to any bit: whole bytes of the target at once, its ends one by one.
void copy_bits(const std::byte* in, std::int64_t from, std::byte* out, std::int64_t to, std::int64_t count) {
  const auto one_by_one = [&](std::int64_t bits) {
    for (; bits > 0; --bits, ++from, ++to, --count) {
      const auto bit = in[from / 8] >> (from % 8) & std::byte{1};
      out[to / 8] = (out[to / 8] & ~(std::byte{1} << (to % 8))) | (bit << (to % 8));
    }
  };
  one_by_one(std::min((8 - to % 8) % 8, count));
  for (const auto shift = static_cast<int>(from % 8); count >= 8; from += 8, to += 8, count -= 8) {
    const auto low = in[from / 8] >> shift;
    out[to / 8] = shift == 0 ? low : low | in[from / 8 + 1] << (8 - shift);
  }
  one_by_one(count);
}

/// Copies `length` indices of the axis from index `from` of x to index `to` of y.
void copy_range(const Tensor& x, std::int64_t from, Tensor& y, std::int64_t to, std::int64_t length,
                int axis) {
  const auto a = memory_view(x.shape(), x.layout(), axis), b = memory_view(y.shape(), y.layout(), axis);
  const std::int64_t bits = bit_width(x.dtype()), count = length * a.inner * bits;
  const std::int64_t source = from * a.inner * bits, step_x = a.size * a.inner * bits;
  const std::int64_t target = to * b.inner * bits, step_y = b.size * b.inner * bits;
  const auto* in = static_cast<const std::byte*>(x.raw());
  auto* out = static_cast<std::byte*>(y.mutable_raw());
  if ((source | target | step_x | step_y | count) % 8 != 0) {
    for (std::int64_t o = 0; o < a.outer; ++o)
      copy_bits(in, o * step_x + source, out, o * step_y + target, count);
    return;
  }
#pragma omp parallel for schedule(static) if (a.outer * count > 8 << 18)
  for (std::int64_t o = 0; o < a.outer; ++o)
    std::memcpy(out + (o * step_y + target) / 8, in + (o * step_x + source) / 8,
                static_cast<std::size_t>(count / 8));
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
  static_cast<std::byte*>(out.mutable_raw())[out.nbytes() - 1] = std::byte{0};  // the bits after the last
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
