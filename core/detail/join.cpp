#include "fakequant/core/detail/join.h"

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/blocks/detail/memory_view.h"
#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

/// The bits after the last element.
void clear_last_byte(Tensor& out) {
  auto* last = static_cast<std::byte*>(out.mutable_raw()) + out.nbytes() - 1;
  run(out.device(), &Kernels::fill_bytes, last, 0, std::size_t{1}, out.device());
}

/// Copies `length` indices of the axis from index `from` of x to index `to` of y.
void copy_range(const Tensor& x, std::int64_t from, Tensor& y, std::int64_t to, std::int64_t length,
                int axis) {
  const auto a = memory_view(x.shape(), x.layout(), axis), b = memory_view(y.shape(), y.layout(), axis);
  const std::int64_t bits = bit_width(x.dtype());
  const StridedBits copy{a.outer,
                         length * a.inner * bits,
                         from * a.inner * bits,
                         a.size * a.inner * bits,
                         to * b.inner * bits,
                         b.size * b.inner * bits};
  if (copy.runs * copy.count == 0) return;
  run(y.device(), &Kernels::copy_runs, copy, x.raw(), y.mutable_raw(), y.device());
}

}  // namespace

Tensor join(const std::vector<Tensor>& parts, int axis) {
  FQ_CHECK(!parts.empty(), "concat", "there is nothing to join");
  const auto at = static_cast<std::size_t>(normalize_axis(axis, parts[0].rank(), "concat"));
  Shape shape = parts[0].shape();
  shape[at] = 0;
  for (const auto& part : parts) {
    Shape other = part.shape();
    FQ_CHECK(other.size() == shape.size() && part.dtype() == parts[0].dtype() &&
                 part.device() == parts[0].device(),
             "concat", "{} does not join with {}", part.describe(), parts[0].describe());
    shape[at] += other[at];
    other[at] = shape[at];
    FQ_CHECK(other == shape, "concat", "{} and {} differ on an axis other than {}", to_string(part.shape()),
             to_string(parts[0].shape()), axis);
  }
  Tensor out = Tensor::empty(shape, parts[0].dtype(), parts[0].device(), parts[0].layout());
  if (out.device().is_meta() || out.numel() == 0) return out;
  clear_last_byte(out);
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
  if (out.device().is_meta() || out.numel() == 0) return out;
  clear_last_byte(out);
  copy_range(x, begin, out, 0, end - begin, at);
  return out;
}

}  // namespace fq::detail
