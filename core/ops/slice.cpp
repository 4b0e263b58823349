#include "fakequant/core/ops/detail/move.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

constexpr std::string_view kSlice = "slice";

}  // namespace

Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end) {
  FQ_CHECK(x.defined(), kSlice, "the input is undefined");
  const int at = normalize_axis(axis, x.rank(), kSlice);
  const std::int64_t size = x.dim(at), from = begin < 0 ? begin + size : begin,
                     to = end < 0 ? end + size : end;
  FQ_CHECK(0 <= from && from <= to && to <= size, kSlice, "{} to {} is not within axis {} of {}", begin, end,
           at, to_string(x.shape()));
  auto attributes = detail::traced([&] {
    return Attributes{{"axis", std::int64_t{at}}, {"begin", from}, {"end", to}};
  });
  return detail::record_move(kSlice, x, CutMove{at, from, to}, std::move(attributes));
}

}  // namespace fq::ops
