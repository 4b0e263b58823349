#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

Floats floats(const Variable& x, std::string_view op) {
  FQ_CHECK(x.defined(), op, "an input is undefined");
  Floats out{x.as_float(), {}};
  out.tensor = std::get<Tensor>(out.variable.value());
  FQ_CHECK(out.tensor.defined(), op, "an input is an undefined tensor");
  FQ_CHECK(out.tensor.dtype() == DType::f32 || out.tensor.dtype() == DType::f64, op,
           "an input is {}: use f32 or f64", out.tensor.describe());
  return out;
}

Floats floats_like(const Variable& x, const Tensor& first, std::string_view op) {
  Floats out = floats(x, op);
  FQ_CHECK(out.tensor.dtype() == first.dtype() && out.tensor.device() == first.device(), op,
           "an input is {}, another {}: dtype and device must agree", out.tensor.describe(),
           first.describe());
  return out;
}

Tensor empty_like(const Tensor& x) { return empty_like(x, x.layout()); }
Tensor empty_like(const Tensor& x, Layout layout) {
  return Tensor::empty(x.shape(), x.dtype(), x.device(), layout);
}

bool is_plain(const QuantizedTensor& x) {
  return x.grid.format.is_integer() && x.grid.granularity.is_per_tensor();
}
bool is_movable(const QuantizedTensor& x) {
  return x.grid.granularity.is_per_tensor() && bit_width(x.codes.dtype()) >= 8;
}
QuantizedTensor with_codes(const QuantizedTensor& x, Tensor codes) { return {std::move(codes), x.grid, {}}; }

}  // namespace fq::detail
