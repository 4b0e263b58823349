#include "fakequant/core/accumulator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/codes.h"
#include "fakequant/core/cuda/accumulators.h"
#include "fakequant/core/join.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/quantizer_checks.h"
#include "fakequant/core/sum_formulas.h"

namespace fq {
namespace {

/// The tensor whose shape, layout and device are the accumulator's own.
const Tensor& body(const Accumulator& x) {
  struct Visitor {
    const Tensor& operator()(const ProductSums& v) const { return v.sums; }
    const Tensor& operator()(const NormalizedSums& v) const { return v.sums; }
    const Tensor& operator()(const PooledSums& v) const { return v.sums; }
    const Tensor& operator()(const Averages& v) const { return v.values; }
    const Tensor& operator()(const CodeAddition& v) const { return v.a.codes; }
    const Tensor& operator()(const AccumulatorConcat& v) const { return body(v.parts.at(0)); }
    const Tensor& operator()(const AccumulatorReshape& v) const { return body(v.inner.at(0)); }
  };
  return std::visit(Visitor{}, x.value);
}

}  // namespace

Shape Accumulator::shape() const {
  if (const auto* view = std::get_if<AccumulatorReshape>(&value)) return view->shape;
  Shape shape = body(*this).shape();
  if (const auto* concat = std::get_if<AccumulatorConcat>(&value)) {
    auto& size = shape[static_cast<std::size_t>(concat->axis)];
    size = 0;
    for (const auto& part : concat->parts) size += part.shape()[static_cast<std::size_t>(concat->axis)];
  }
  return shape;
}

Layout Accumulator::layout() const {
  return std::holds_alternative<AccumulatorReshape>(value) ? Layout::row_major : body(*this).layout();
}
Device Accumulator::device() const { return body(*this).device(); }

namespace {

Tensor joined_floats(const AccumulatorConcat& x) {
  std::vector<Tensor> parts;
  for (const auto& part : x.parts) parts.push_back(to_float(part));
  return detail::join(parts, x.axis);
}

Tensor in_rows(const Tensor& x, const Shape& shape) { return x.to(Layout::row_major).reshape(shape); }

/// What a part of x is to its reader: the ReLU of the whole is its own.
Accumulator with_relu(Accumulator part, bool relu) {
  part.relu = part.relu || relu;
  return part;
}

bool has_nan(const Tensor& numbers) {
  const auto* v = numbers.data<float>();
  return std::any_of(v, v + numbers.numel(), [](float x) { return std::isnan(x); });
}

/// Integers are never NaN: only what batch normalization multiplies them by and adds. Kernels of GPUs find it
/// themselves.
bool may_be_nan(const Accumulator& x) {
  const auto any = [](const auto& parts) { return std::ranges::any_of(parts, may_be_nan); };
  if (!x.device().is_cpu()) return false;
  if (const auto* normalized = std::get_if<NormalizedSums>(&x.value))
    return has_nan(normalized->factor) || has_nan(normalized->shift);
  if (const auto* concat = std::get_if<AccumulatorConcat>(&x.value)) return any(concat->parts);
  const auto* view = std::get_if<AccumulatorReshape>(&x.value);
  return view != nullptr && any(view->inner);
}

/// The ReLU of kernels takes a NaN to 0; here it stays, for whoever reads it to find.
Tensor relu_with_nan(const Accumulator& x, Tensor* mask) {
  Accumulator plain = x;
  plain.relu = false;
  const Tensor values = to_float(plain);
  Tensor out = values.clone();
  if (mask != nullptr) *mask = Tensor::empty(out.shape(), DType::u1, out.device(), out.layout());
  cpu::relu_values(out, mask);
  const auto* from = values.data<float>(values.layout());
  auto* to = out.mutable_data<float>(out.layout());
  for (std::int64_t i = 0; i < out.numel(); ++i)
    if (std::isnan(from[i])) to[i] = from[i];
  return out;
}

QuantizedTensor requantize_parts(const AccumulatorConcat& x, bool relu, const QuantSpec& spec,
                                 bool with_mask) {
  std::vector<Tensor> codes, masks;
  for (const auto& part : x.parts) {
    auto rounded = requantize(with_relu(part, relu), spec, with_mask);
    codes.push_back(std::move(rounded.codes));
    masks.push_back(std::move(rounded.mask));
  }
  return {detail::join(codes, x.axis), spec, with_mask ? detail::join(masks, x.axis) : Tensor()};
}

QuantizedTensor requantize_view(const AccumulatorReshape& x, bool relu, const QuantSpec& spec,
                                bool with_mask) {
  const auto inner = requantize(with_relu(x.inner.at(0), relu), spec, with_mask);
  return {in_rows(inner.codes, x.shape), spec, with_mask ? in_rows(inner.mask, x.shape) : Tensor()};
}

}  // namespace

Tensor to_float(const Accumulator& x, Tensor* mask) {
  const ProfileScope profile("epilogue");
  if (x.relu && may_be_nan(x)) return relu_with_nan(x, mask);
  const auto* concat = std::get_if<AccumulatorConcat>(&x.value);
  const auto* view = std::get_if<AccumulatorReshape>(&x.value);
  Tensor out;
  if (concat != nullptr) out = joined_floats(*concat);
  if (view != nullptr) out = in_rows(to_float(view->inner.at(0)), view->shape);
  const bool composed = out.defined();
  if (!composed) out = Tensor::empty(x.shape(), DType::f32, x.device(), x.layout());
  if (!x.relu) mask = nullptr;
  if (mask != nullptr) *mask = Tensor::empty(out.shape(), DType::u1, out.device(), out.layout());
  if (out.device().is_cpu()) {
    if (!composed) cpu::accumulator_values(x, out, mask);
    if (composed && x.relu) cpu::relu_values(out, mask);
  }
  if (out.device().is_cuda()) {
    if (!composed) cuda::accumulator_values(x, out, mask);
    if (composed && x.relu) cuda::relu_values(out, mask);
  }
  return out;
}

QuantizedTensor requantize(const Accumulator& x, const QuantSpec& spec, bool with_mask) {
  const ProfileScope profile("epilogue");
  FQ_CHECK(spec.format.is_integer() && spec.granularity.is_per_tensor(), "requantize",
           "'{}' is {} {}: accumulators round to one integer grid", spec.name, to_string(spec.format),
           to_string(spec.granularity));
  if (const auto* concat = std::get_if<AccumulatorConcat>(&x.value))
    return requantize_parts(*concat, x.relu, spec, with_mask);
  if (const auto* view = std::get_if<AccumulatorReshape>(&x.value))
    return requantize_view(*view, x.relu, spec, with_mask);
  detail::check_device(spec, body(x), "requantize");
  if (may_be_nan(x)) throw NumericError(detail::nan_message(spec));
  QuantizedTensor out{{}, spec, {}};
  out.codes = Tensor::empty(x.shape(), spec.format.code_dtype(), x.device(), x.layout());
  if (with_mask) out.mask = Tensor::empty(out.shape(), DType::u1, x.device(), out.layout());
  if (x.device().is_cpu()) cpu::accumulator_codes(x, spec, out);
  if (x.device().is_cuda()) cuda::accumulator_codes(x, out, detail::nan_message(spec));
  return out;
}

Tensor bias_codes(const Tensor& b, const Tensor& scale, std::int64_t largest_sum) {
  Tensor out = Tensor::empty(b.shape(), DType::i32, b.device());
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const auto room = static_cast<std::int32_t>(std::clamp(most - largest_sum, std::int64_t{0}, most));
  const Tensor values = b.to(DType::f32);
  if (b.device().is_cuda()) cuda::bias_codes(values, scale, room, out);
  if (!b.device().is_cpu()) return out;
  const auto* bias = values.data<float>();
  const auto* s = scale.data<float>();
  auto* codes = out.mutable_data<std::int32_t>();
  for (std::int64_t c = 0; c < b.numel(); ++c)
    codes[c] = detail::bias_code(bias[c], s[scale.numel() == 1 ? 0 : c], room);
  return out;
}

}  // namespace fq
