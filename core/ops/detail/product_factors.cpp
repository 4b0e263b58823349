// Factors of the products of codes, and what products keep for their backward pass.

#include <algorithm>
#include <utility>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/ops/detail/product.h"

namespace fq::detail {
namespace {

/// Returns x, with the channels innermost, scaled.
Tensor scaled(const Tensor& x, const Tensor& scales, std::int64_t channels, DType dtype) {
  Tensor out = Tensor::empty(x.shape(), dtype, x.device(), x.layout());
  if (out.numel() > 0) run(out.device(), &Kernels::scale_to_bf16, x, scales, channels, out);
  return out;
}

/// Returns dy, with the channels innermost, scaled. Sets `sums`, unless null, to the sum over all other axes.
/// 16-bit and f64 gradients are evaluated, and their sums are left to the caller.
Tensor scaled_gradient(PendingGradient& dy, const Tensor& scales, DType dtype, Tensor* sums) {
  if (dy.scale || dy.values.dtype() != DType::f32) dy.evaluate();
  const bool pending = dy.values.dtype() == DType::f32;
  const PendingGradient source = pending ? dy : dy.values.to(DType::f32);
  const Tensor& x = source.values;
  const std::int64_t channels = x.layout() == Layout::channels_last ? x.dim(1) : x.dim(-1);
  Tensor out = Tensor::empty(x.shape(), dtype, x.device(), x.layout()), unused;
  if (out.numel() == 0) return out;
  const bool adds = sums != nullptr && pending;
  if (adds) *sums = Tensor::empty({channels}, DType::f32, x.device());
  run(out.device(), &Kernels::scale_gradient, source, scales, channels, out, adds ? *sums : unused);
  return out;
}

/// Returns code * (scale / unit). The quotient is a bf16 number, and so is the product.
Tensor block_factor(const QuantizedTensor& x, DType dtype) {
  const Device device = x.codes.device();
  Tensor out = Tensor::empty(x.shape(), dtype, device, x.layout());
  if (device.is_meta()) return out;  // the scales of fixed blocks are not available
  // Dividing by `unit` leaves a scale of `scale_bits` bits. `unit` itself is applied once to the finished
  // product.
  QuantizedTensor by_unit{x.codes, x.grid, {}};
  if (x.grid.unit != 1) {
    const Tensor inverse = Tensor::full({}, static_cast<double>(1.0f / x.grid.unit), DType::f32, device);
    by_unit.grid.scale = scaled(x.grid.scale, inverse, 1, DType::f32);
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
  const bool bytes =
      bit_width(x.codes.dtype()) == 8 && !needs_block_kernels(x.grid, x.shape(), "code_factor");
  if (dtype != DType::bf16 || !bytes) return code_values(x).to(dtype);
  if (x.factors.defined()) return x.factors;
  Tensor out = Tensor::empty(x.shape(), dtype, device, x.layout());
  run(device, &Kernels::decode, x, out);
  return out;
}

std::shared_ptr<SharedFactors> SharedFactors::of(const Variable& x) {
  Node& node = *x.node();
  const std::scoped_lock lock(node.mutex);
  auto known = node.factors.lock();
  if (!known) node.factors = known = std::make_shared<SharedFactors>();
  return known;
}

CodeGradients::CodeGradients(const Variable& x, const Variable& w, int w_axis)
    : x_(*x.quantized()),
      w_(*w.quantized()),
      x_factors_(SharedFactors::of(x)),
      w_axis_(w_axis),
      type_(backward_type()) {
  x_.mask = w_.mask = {};
}

// dY' = dY * s_w, see BackwardType. The bias gradient sums the same elements, so one pass computes both.
Tensor CodeGradients::dy(PendingGradient& dy, Tensor* db) const {
  if (type_ == BackwardType::fp32) return dy.evaluate().to(DType::f32);
  return scaled_gradient(dy, factor_scale(w_, w_axis_), code_factor_dtype(dy.values.device()), db);
}

Tensor CodeGradients::x() const {
  if (type_ == BackwardType::fp32) return dequantize(x_);
  return SharedFactors::get(x_factors_,
                            [&] { return code_factor(x_, -1, code_factor_dtype(x_.codes.device())); });
}
Tensor CodeGradients::w() const {
  if (type_ == BackwardType::fp32) return dequantize(w_);
  return w_factors_.defined() ? w_factors_ : code_factor(w_, w_axis_, code_factor_dtype(w_.codes.device()));
}

PendingGradient CodeGradients::weight_gradient(Tensor product) const {
  PendingGradient out(std::move(product));
  const int axis = std::max(w_axis_, 0);  // any axis, if there is one scale
  if (type_ != BackwardType::fp32)
    out.scale = PendingGradient::Scale{factor_scale(x_, -1), factor_scale(w_, w_axis_), axis};
  return out;
}

FloatGradients::Kept::Kept(const Variable& v) {
  if (const auto* q = v.quantized())
    codes = QuantizedTensor{q->codes, q->grid, {}};
  else
    floats = Saved(v.as_float().tensor());
}

FloatGradients::FloatGradients(const Variable& x, const Variable& w) : x_(x), w_(w) {
  const auto small = [](const Kept& kept) { return kept.codes && kept.codes->grid.format.bits() <= 8; };
  rounds_ = backward_type() == BackwardType::bf16 && (small(x_) || small(w_)) &&
            code_factor_dtype(x.device()) == DType::bf16;
}

Tensor FloatGradients::dy(PendingGradient& dy, Tensor* db) const {
  if (!rounds_) return dy.evaluate();
  return scaled_gradient(dy, Tensor::full({}, 1.0, DType::f32, dy.values.device()), DType::bf16, db);
}

Tensor FloatGradients::rounded(const Tensor& t) const {
  if (!rounds_) return t;
  return scaled(t.to(DType::f32), Tensor::full({}, 1.0, DType::f32, t.device()), 1, DType::bf16);
}

// Values of blocks are written as bf16 directly, without an f32 tensor in between.
Tensor FloatGradients::factor(const Kept& kept) const {
  if (!kept.codes) return rounded(kept.floats.get());
  const QuantizedTensor& q = *kept.codes;
  if (!rounds_ || !needs_block_kernels(q.grid, q.shape(), "factor")) return rounded(dequantize(q));
  Tensor out = Tensor::empty(q.shape(), DType::bf16, q.codes.device(), q.layout());
  run(out.device(), &Kernels::dequantize, q, out);
  return out;
}

}  // namespace fq::detail
