#include "fakequant/core/ops/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

Tensor moved(const Tensor& x, const Shape& shape) { return x.to(Layout::row_major).reshape(shape); }

/// Sums stay sums: a view of them, or themselves where the new shape is the one a view was made of.
Accumulator moved(const Accumulator& x, const Shape& shape) {
  const auto* view = std::get_if<AccumulatorReshape>(&x.value);
  Accumulator inner = view != nullptr ? view->inner.at(0) : x;
  const bool relu = inner.relu || x.relu;
  inner.relu = inner.shape() == shape && relu;
  if (inner.shape() == shape) return inner;
  return {AccumulatorReshape{{std::move(inner)}, shape}, relu};
}

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

Variable reshape_as(std::string_view op, const Variable& x, const Shape& shape, Attributes attributes) {
  const auto backward = [from = x.shape()](const Tensor& dy) { return std::vector<Tensor>{moved(dy, from)}; };
  if (const auto* codes = x.quantized(); codes != nullptr && detail::is_movable(*codes))
    return detail::record(op, detail::with_codes(*codes, moved(codes->codes, shape)), {x}, backward,
                          std::move(attributes));
  if (const auto* sums = x.accumulator())
    return detail::record(op, moved(*sums, shape), {x}, backward, std::move(attributes));
  const auto floats = detail::floats(x, op);
  return detail::record(op, moved(floats.tensor, shape), {floats.variable}, backward, std::move(attributes));
}

}  // namespace

Variable reshape(const Variable& x, Shape shape) {
  FQ_CHECK(x.defined(), "reshape", "the input is undefined");
  auto attributes = detail::traced([&] { return Attributes{{"shape", shape}}; });
  const Shape to = resolved("reshape", x.shape(), std::move(shape));
  return reshape_as("reshape", x, to, std::move(attributes));
}

Variable flatten(const Variable& x, int start_axis) {
  FQ_CHECK(x.defined() && x.rank() > 0, "flatten", "the input has no axes");
  const Shape from = x.shape();
  const int start = normalize_axis(start_axis, x.rank(), "flatten");
  Shape to(from.begin(), from.begin() + start);
  to.push_back(numel(Shape(from.begin() + start, from.end())));
  return reshape_as("flatten", x, to, detail::traced([&] {
                      return Attributes{{"start_axis", std::int64_t{start}}};
                    }));
}

}  // namespace fq::ops
