#include "fakequant/layers/quantizer/detail/pre_quant_scale.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/tape.h"

namespace fq::detail {
namespace {

bool is_16_bit(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

/// fl(a * b) as `dtype`: exact in f32 for two 16-bit factors, so rounded once.
Tensor product(const Tensor& a, const Tensor& b, DType dtype) {
  if (a.device().is_meta()) return Tensor::empty(a.shape(), dtype, a.device(), a.layout());
  const NoGrad no_grad;
  const DType wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  return ops::multiply(Variable(a.to(wide)), Variable(b.to(wide))).tensor().to(dtype);
}

DType promoted(const Tensor& x, const Tensor& scale) {
  if (scale.rank() == 0 || scale.dtype() == x.dtype() || x.dtype() == DType::f64) return x.dtype();
  return scale.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

}  // namespace

Variable pre_quant_scaled(const Variable& input, const Tensor& scale) {
  const Variable x = input.as_float();
  const Tensor values = x.tensor();
  FQ_CHECK(scale.rank() <= values.rank() &&
               broadcast_shapes(values.shape(), scale.shape(), "pre_quant_scale") == values.shape(),
           "pre_quant_scale", "the scale {} does not broadcast to the input {}", to_string(scale.shape()),
           to_string(values.shape()));
  return record("pre_quant_scale", product(values, scale, promoted(values, scale)), {x},
                [scale, dtype = values.dtype()](const Tensor& dy) {
                  return std::vector<Tensor>{product(dy, scale, dy.dtype()).to(dtype)};
                });
}

Variable as_f32(const Variable& x) {
  const auto* values = std::get_if<Tensor>(&x.value());
  if (values == nullptr || !is_16_bit(values->dtype())) return x;
  return record("to_f32", values->to(DType::f32), {x},
                [dtype = values->dtype()](const Tensor& dy) { return std::vector<Tensor>{dy.to(dtype)}; });
}

}  // namespace fq::detail
