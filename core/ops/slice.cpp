#include "fakequant/core/join.h"
#include "fakequant/core/ops/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kSlice = "slice";

/// Zeros of that shape with dy in rows [begin, ..) of the axis.
Tensor padded(const Tensor& dy, const Shape& shape, int axis, std::int64_t begin) {
  Shape before = shape, after = shape;
  const auto at = static_cast<std::size_t>(axis);
  before[at] = begin;
  after[at] = shape[at] - begin - dy.shape()[at];
  const auto zeros = [&](const Shape& s) { return Tensor::zeros(s, dy.dtype(), dy.device(), dy.layout()); };
  return detail::join({zeros(before), dy, zeros(after)}, axis);
}

}  // namespace

Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end) {
  FQ_CHECK(x.defined(), kSlice, "the input is undefined");
  const int at = normalize_axis(axis, x.rank(), kSlice);
  const std::int64_t size = x.dim(at), from = begin < 0 ? begin + size : begin,
                     to = end < 0 ? end + size : end;
  FQ_CHECK(0 <= from && from <= to && to <= size, kSlice, "{} to {} is not within axis {} of {}", begin, end,
           at, to_string(x.shape()));
  const auto backward = [shape = x.shape(), at, from](const Tensor& dy) {
    return std::vector<Tensor>{padded(dy, shape, at, from)};
  };
  auto attributes = detail::traced([&] {
    return Attributes{{"axis", std::int64_t{at}}, {"begin", from}, {"end", to}};
  });
  if (const auto* codes = x.quantized(); codes != nullptr && detail::is_movable(*codes))
    return detail::record(kSlice, detail::with_codes(*codes, detail::cut(codes->codes, at, from, to)), {x},
                          backward, std::move(attributes));
  const auto floats = detail::floats(x, kSlice);
  return detail::record(kSlice, detail::cut(floats.tensor, at, from, to), {floats.variable}, backward,
                        std::move(attributes));
}

}  // namespace fq::ops
