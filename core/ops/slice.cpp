#include "fakequant/core/ops/detail/move.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kSlice = "slice";

}  // namespace

Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  FQ_CHECK(x.defined(), kSlice, "the input is undefined");
  const int at = normalize_axis(axis, x.rank(), kSlice);
  const std::int64_t size = x.dim(at), from = begin < 0 ? begin + size : begin,
                     to = end < 0 ? end + size : end;
  FQ_CHECK(0 <= from && from <= to && to <= size, kSlice, "{} to {} is not within axis {} of {}", begin, end,
           at, to_string(x.shape()));
  FQ_CHECK(step >= 1, kSlice, "the step is {}: it must be 1 or more", step);
  auto attributes = detail::traced([&] {
    return Attributes{{"axis", std::int64_t{at}}, {"begin", from}, {"end", to}, {"step", step}};
  });
  if (step == 1) return detail::record_move(kSlice, x, CutMove{at, from, to}, std::move(attributes));
  TakeMove move{at, {}};
  for (std::int64_t i = from; i < to; i += step) move.from.push_back(i);
  return detail::record_move(kSlice, x, move, std::move(attributes));
}

std::vector<Variable> split(const Variable& x, const std::vector<std::int64_t>& sizes, int axis) {
  FQ_CHECK(x.defined(), "split", "the input is undefined");
  const int at = normalize_axis(axis, x.rank(), "split");
  std::vector<Variable> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    FQ_CHECK(size >= 0 && size <= x.dim(at) - begin, "split", "parts of {} do not fit axis {} of {}",
             to_string(sizes), at, to_string(x.shape()));
    parts.push_back(slice(x, at, begin, begin + size));
    begin += size;
  }
  FQ_CHECK(begin == x.dim(at), "split", "parts of {} have {} elements of the {} on axis {}", to_string(sizes),
           begin, x.dim(at), at);
  return parts;
}

}  // namespace fq::ops
