#include "fakequant/core/ops/detail/move.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

/// `shape` with its -1 filled in.
Shape resolved(std::string_view op, const Shape& from, Shape shape) {
  std::int64_t* open = nullptr;
  std::int64_t known = 1;
  for (auto& size : shape) {
    FQ_CHECK(size >= 0 || (size == -1 && open == nullptr), op,
             "{} is no shape: sizes are 0 or more, one may be -1", to_string(shape));
    if (size == -1)
      open = &size;
    else
      known *= size;
  }
  if (open != nullptr) *open = known > 0 ? numel(from) / known : 0;
  FQ_CHECK(numel(shape) == numel(from), op, "{} has {} elements, {} has {}: the counts must agree",
           to_string(from), numel(from), to_string(shape), numel(shape));
  return shape;
}

}  // namespace

Variable reshape(const Variable& x, Shape shape) {
  FQ_CHECK(x.defined(), "reshape", "the input is undefined");
  auto attributes = detail::traced([&] { return Attributes{{"shape", shape}}; });
  const Shape to = resolved("reshape", x.shape(), std::move(shape));
  return detail::record_move("reshape", x, ReshapeMove{to}, std::move(attributes));
}

Variable flatten(const Variable& x, int start_axis) {
  FQ_CHECK(x.defined() && x.rank() > 0, "flatten", "the input has no axes");
  const Shape from = x.shape();
  const int start = normalize_axis(start_axis, x.rank(), "flatten");
  Shape to(from.begin(), from.begin() + start);
  to.push_back(numel(Shape(from.begin() + start, from.end())));
  auto attributes = detail::traced([&] { return Attributes{{"start_axis", std::int64_t{start}}}; });
  return detail::record_move("flatten", x, ReshapeMove{std::move(to)}, std::move(attributes));
}

}  // namespace fq::ops
