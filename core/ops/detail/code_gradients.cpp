#include "fakequant/core/ops/detail/code_gradients.h"

#include <algorithm>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/ops/detail/code_products.h"

namespace fq::detail {
namespace {

/// x, whose channels lie innermost, scaled; `sums` over all else are made on the way.
Tensor scaled(const Tensor& x, const Tensor& scales, std::int64_t channels, DType dtype,
              Tensor* sums = nullptr) {
  Tensor out = Tensor::empty(x.shape(), dtype, x.device(), x.layout());
  if (out.numel() == 0) return out;
  if (sums != nullptr) {
    *sums = Tensor::empty({channels}, DType::f32, x.device());
    run(out.device(), &Kernels::scale_and_sum, x, scales, out, *sums);
  } else {
    run(out.device(), &Kernels::scale_to_bf16, x, scales, channels, out);
  }
  return out;
}

std::int64_t channels_of(const Tensor& dy) {
  return dy.layout() == Layout::channels_last ? dy.dim(1) : dy.dim(-1);
}

/// code * (scale / unit): that quotient is a bf16 number, and so is the product.
Tensor block_factor(const QuantizedTensor& x, DType dtype) {
  const Device device = x.codes.device();
  Tensor out = Tensor::empty(x.shape(), dtype, device, x.layout());
  if (device.is_meta()) return out;  // the scales of fixed blocks are elsewhere
  QuantizedTensor by_unit{x.codes, x.spec, {}};
  if (x.spec.unit != 1) {
    const Tensor inverse = Tensor::full({}, static_cast<double>(1.0f / x.spec.unit), DType::f32, device);
    by_unit.spec.scale = scaled(x.spec.scale, inverse, 1, DType::f32);
  }
  run(device, &Kernels::dequantize, by_unit, out);
  return out;
}

}  // namespace

DType code_factor_dtype(Device device) {
  return device.is_meta() ? DType::f32 : run(device, &Kernels::code_factor_dtype);
}

Tensor code_factor(const QuantizedTensor& x, int axis, DType dtype) {
  const Device device = x.codes.device();
  if (!codes_are_factors(x, axis)) return block_factor(x, dtype);
  const bool bytes = bit_width(x.codes.dtype()) == 8 && !in_blocks(x.spec, x.shape(), "code_factor");
  if (dtype != DType::bf16 || !bytes) return code_values(x).to(dtype);
  Tensor out = Tensor::empty(x.shape(), dtype, device, x.layout());
  run(device, &Kernels::decode, x, out);
  return out;
}

CodeGradients::CodeGradients(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis)
    : x_{x.codes, x.spec, {}}, w_{w.codes, w.spec, {}}, w_axis_(w_axis), type_(backward_type()) {}

Tensor CodeGradients::dy(const Tensor& dy, Tensor* db) const {
  const Tensor floats = dy.to(DType::f32);
  if (type_ == BackwardType::fp32) return floats;
  return scaled(floats, factor_scale(w_, w_axis_), channels_of(dy), code_factor_dtype(dy.device()),
                dy.dtype() == DType::f32 ? db : nullptr);
}

Tensor CodeGradients::x() const {
  return type_ == BackwardType::fp32 ? dequantize(x_)
                                     : code_factor(x_, -1, code_factor_dtype(x_.codes.device()));
}
Tensor CodeGradients::w() const {
  return type_ == BackwardType::fp32 ? dequantize(w_)
                                     : code_factor(w_, w_axis_, code_factor_dtype(w_.codes.device()));
}

void CodeGradients::finish_dw(Tensor& dw) const {
  if (type_ == BackwardType::fp32) return;
  const Tensor x_scale = factor_scale(x_, -1), w_scale = factor_scale(w_, w_axis_);
  const int axis = std::max(w_axis_, 0);  // any, of one scale
  run(dw.device(), &Kernels::scale_weight_gradient, dw, x_scale, w_scale, axis);
}

FloatGradients::Kept::Kept(const Variable& v) {
  if (const auto* q = v.quantized())
    codes = QuantizedTensor{q->codes, q->spec, {}};
  else
    floats = Saved(v.as_float().tensor());
}

FloatGradients::FloatGradients(const Variable& x, const Variable& w) : x_(x), w_(w) {
  const auto small = [](const Kept& kept) { return kept.codes && kept.codes->spec.format.bits() <= 8; };
  rounds_ = backward_type() == BackwardType::bf16 && (small(x_) || small(w_)) &&
            code_factor_dtype(x.device()) == DType::bf16;
}

Tensor FloatGradients::rounded(const Tensor& t, Tensor* sums) const {
  if (!rounds_) return t;
  const Tensor one = Tensor::full({}, 1.0, DType::f32, t.device());
  if (t.dtype() != DType::f32) sums = nullptr;
  return scaled(t.to(DType::f32), one, sums == nullptr ? 1 : channels_of(t), DType::bf16, sums);
}

Tensor FloatGradients::factor(const Kept& kept) const {
  if (!kept.codes) return rounded(kept.floats.get());
  const QuantizedTensor& q = *kept.codes;
  if (!rounds_ || !in_blocks(q.spec, q.shape(), "factor")) return rounded(dequantize(q));
  Tensor out = Tensor::empty(q.shape(), DType::bf16, q.codes.device(), q.layout());
  run(out.device(), &Kernels::dequantize, q, out);
  return out;
}

}  // namespace fq::detail
