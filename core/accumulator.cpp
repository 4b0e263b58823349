#include "fakequant/core/accumulator.h"

#include <algorithm>
#include <limits>

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/codes.h"
#include "fakequant/core/join.h"

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

Tensor to_float(const Accumulator& x, Tensor* mask) {
  Tensor out;
  if (const auto* concat = std::get_if<AccumulatorConcat>(&x.value)) {
    std::vector<Tensor> parts;
    for (const auto& part : concat->parts) parts.push_back(to_float(part));
    out = detail::join(parts, concat->axis);
  } else if (const auto* view = std::get_if<AccumulatorReshape>(&x.value)) {
    out = to_float(view->inner.at(0)).to(Layout::row_major).reshape(view->shape);
  } else {
    out = Tensor::empty(x.shape(), DType::f32, x.device(), x.layout());
    if (out.device().is_cpu()) cpu::accumulator_values(x, out);
  }
  if (!x.relu) return out;
  if (mask != nullptr) *mask = Tensor::empty(out.shape(), DType::u1, out.device(), out.layout());
  if (out.device().is_cpu()) cpu::relu_values(out, mask);
  return out;
}

QuantizedTensor requantize(const Accumulator& x, const QuantSpec& spec, bool with_mask) {
  FQ_CHECK(spec.format.is_integer() && spec.granularity.is_per_tensor(), "requantize",
           "'{}' is {} {}: accumulators round to one integer grid", spec.name, to_string(spec.format),
           to_string(spec.granularity));
  QuantizedTensor out{{}, spec, {}};
  bool masked = false;
  if (const auto* concat = std::get_if<AccumulatorConcat>(&x.value)) {
    std::vector<Tensor> parts;
    for (auto part : concat->parts) {
      part.relu = part.relu || x.relu;
      parts.push_back(requantize(part, spec, false).codes);
    }
    out.codes = detail::join(parts, concat->axis);
  } else if (const auto* view = std::get_if<AccumulatorReshape>(&x.value)) {
    auto inner = view->inner.at(0);
    inner.relu = inner.relu || x.relu;
    out.codes = requantize(inner, spec, false).codes.to(Layout::row_major).reshape(view->shape);
  } else {
    out.codes = Tensor::empty(x.shape(), spec.format.code_dtype(), x.device(), x.layout());
    if (with_mask) out.mask = Tensor::empty(out.shape(), DType::u1, x.device(), out.layout());
    if (x.device().is_cpu()) masked = cpu::accumulator_codes(x, spec, out);
  }
  if (with_mask && !masked) {
    out.mask = Tensor::empty(out.shape(), DType::u1, x.device(), out.layout());
    Accumulator plain = x;
    plain.relu = false;
    if (x.device().is_cpu()) cpu::range_mask(to_float(plain), cpu::grid_rows(spec)[0], x.relu, out.mask);
  }
  return out;
}

Tensor bias_codes(const Tensor& b, const Tensor& scale, std::int64_t largest_sum) {
  Tensor out = Tensor::empty(b.shape(), DType::i32, b.device());
  if (!b.device().is_cpu()) return out;
  const std::int64_t room = std::max<std::int64_t>(std::numeric_limits<std::int32_t>::max() - largest_sum, 0);
  const Tensor values = b.to(DType::f32);
  const auto* bias = values.data<float>();
  const auto* s = scale.data<float>();
  auto* codes = out.mutable_data<std::int32_t>();
  for (std::int64_t c = 0; c < b.numel(); ++c) {
    const double code = scalar::rint_(scalar::div_(bias[c], s[scale.numel() == 1 ? 0 : c]));
    const auto limit = static_cast<double>(room);
    codes[c] = static_cast<std::int32_t>(std::clamp(code, -limit, limit));
  }
  return out;
}

}  // namespace fq
