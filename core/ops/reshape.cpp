#include <optional>

#include "fakequant/core/ops/operator.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

Tensor moved(const Tensor& x, const Shape& shape) { return x.to(Layout::row_major).reshape(shape); }

/// One value a channel, each repeated `times` in place.
Tensor repeated(const Tensor& values, std::int64_t times) {
  if (!values.defined() || values.rank() == 0 || times == 1) return values;
  Tensor out = Tensor::empty({values.numel() * times}, values.dtype(), values.device());
  if (!detail::computes(out)) return out;
  detail::visit_dtype(values.dtype(), "reshape", [&]<class T>(T) {
    const T* in = values.data<T>();
    T* to = out.mutable_data<T>();
    for (std::int64_t i = 0; i < out.numel(); ++i) to[i] = in[i / times];
  });
  return out;
}

/// Sums [.., C, ..] in a shape whose axis of the same index holds either the channels alone or, last,
/// channels and all that follows them.
std::optional<ProductSums> reshaped(const ProductSums& x, const Shape& shape) {
  const auto from = axis_view(x.sums.shape(), x.axis);
  if (x.axis >= static_cast<int>(shape.size())) return std::nullopt;
  const auto to = axis_view(shape, x.axis);
  const bool flattened = to.inner == 1 && to.size == from.size * from.inner;
  if (to.outer != from.outer || (to.size != from.size && !flattened)) return std::nullopt;
  const std::int64_t times = to.size == from.size ? 1 : from.inner;
  return ProductSums{moved(x.sums, shape), repeated(x.bias, times), repeated(x.scale, times), x.axis};
}

std::optional<Accumulator> reshaped(const Accumulator& x, const Shape& shape);

/// Parts joined along axis 1 and flattened from there stay parts joined along axis 1.
std::optional<AccumulatorConcat> reshaped(const AccumulatorConcat& x, const Shape& whole,
                                          const Shape& shape) {
  if (x.axis != 1 || shape.size() != 2 || shape[0] != whole[0]) return std::nullopt;
  AccumulatorConcat out{{}, 1};
  for (const auto& part : x.parts) {
    const Shape own = part.shape();
    auto flat = reshaped(part, {own[0], numel(Shape(own.begin() + 1, own.end()))});
    if (!flat) return std::nullopt;
    out.parts.push_back(std::move(*flat));
  }
  return out;
}

std::optional<Accumulator> reshaped(const Accumulator& x, const Shape& shape) {
  if (const auto* sums = std::get_if<ProductSums>(&x.value)) {
    auto out = reshaped(*sums, shape);
    return out ? std::optional(Accumulator{std::move(*out), x.relu}) : std::nullopt;
  }
  if (const auto* sums = std::get_if<PooledSums>(&x.value))
    return Accumulator{PooledSums{moved(sums->sums, shape), sums->scale, sums->count}, x.relu};
  if (const auto* averages = std::get_if<Averages>(&x.value))
    return Accumulator{Averages{moved(averages->values, shape)}, x.relu};
  if (const auto* sum = std::get_if<CodeAddition>(&x.value))
    return Accumulator{CodeAddition{detail::with_codes(sum->a, moved(sum->a.codes, shape)),
                                    detail::with_codes(sum->b, moved(sum->b.codes, shape))},
                       x.relu};
  auto parts = reshaped(std::get<AccumulatorConcat>(x.value), x.shape(), shape);
  return parts ? std::optional(Accumulator{std::move(*parts), x.relu}) : std::nullopt;
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
    if (auto value = reshaped(*sums, shape))
      return detail::record(op, std::move(*value), {x}, backward, std::move(attributes));
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
