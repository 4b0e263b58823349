#include "fakequant/core/ops/detail/code_products.h"

#include <algorithm>
#include <limits>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/profile.h"

namespace fq::detail {
namespace {

bool small_integer(const Format& format) { return format.is_integer() && format.bits() <= 8; }

/// The largest magnitude of a code of that format.
std::int64_t largest_code(const IntFormat& format) noexcept {
  return std::max<std::int64_t>(-format.lower(), format.upper());
}

/// Significant bits of a code.
int significand(const Format& format) {
  return format.is_integer() ? format.bits() : format.floating().mantissa + 1;
}

bool is_factor(const QuantizedTensor& x, int axis) {
  constexpr int bfloat16_bits = 8;
  const int code = significand(x.grid.format), scale = x.grid.scale_bits;
  if (codes_are_factors(x, axis)) return code <= bfloat16_bits;
  return scale > 0 && (scale == 1 ? code : code + scale) <= bfloat16_bits;
}

/// Null unless scales of weights are ranges over a bound, whatever sign the weights have.
std::shared_ptr<const ProductOrigin> origin_of(const QuantizedTensor& x, const QuantizedTensor& w,
                                               const Variable& bias, std::int64_t channels,
                                               std::int64_t largest_sum) {
  const Grid& grid = w.grid;
  const bool symmetric = grid.format.lower() == -grid.format.bound();
  const bool ranges = grid.amax.numel() == 1 || grid.amax.numel() == channels;
  if (grid.raised || grid.scale_bits != 0 || !symmetric || !ranges) return nullptr;
  return std::make_shared<const ProductOrigin>(ProductOrigin{
      x.grid.scale, grid.amax, grid.format.bound(), bias.defined() ? bias.tensor() : Tensor(), largest_sum});
}

}  // namespace

bool codes_are_factors(const QuantizedTensor& x, int axis) {
  const auto& by = x.grid.granularity;
  return by.is_per_tensor() || (axis >= 0 && by.single_axis(x.codes.rank()) == axis);
}

Tensor factor_scale(const QuantizedTensor& x, int axis) {
  return codes_are_factors(x, axis)
             ? x.grid.scale
             : Tensor::full({}, static_cast<double>(x.grid.unit), DType::f32, x.codes.device());
}

CodeKind code_kind(const Variable& x, const Variable& w, int w_axis) {
  const auto* a = x.quantized();
  const auto* b = w.quantized();
  if (a == nullptr || b == nullptr) return CodeKind::floats;
  if (small_integer(a->grid.format) && small_integer(b->grid.format) && codes_are_factors(*a, -1) &&
      codes_are_factors(*b, w_axis))
    return CodeKind::integers;
  return is_factor(*a, -1) && is_factor(*b, w_axis) ? CodeKind::factors : CodeKind::floats;
}

Tensor product_scale(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis, std::int64_t channels) {
  const Tensor s_x = factor_scale(x, -1), s_w = factor_scale(w, w_axis);
  Tensor out = Tensor::empty(s_w.numel() == 1 ? Shape{} : Shape{channels}, DType::f32, x.codes.device());
  run(out.device(), &Kernels::product_scale, s_x, s_w, out);
  return out;
}

std::int64_t largest_sum(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t terms,
                         std::string_view function) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::int64_t product = largest_code(x.grid.format.integer()) * largest_code(w.grid.format.integer());
  FQ_CHECK(terms <= most / product, function,
           "a sum of {} products of {} and {} codes may reach {} * {}: int32 holds {} such terms; use fewer "
           "bits or "
           "groups",
           terms, to_string(x.grid.format), to_string(w.grid.format), terms, product, most / product);
  return terms * product;
}

Codes codes_of(const QuantizedTensor& x, const Tensor& codes) {
  return {codes.raw(), codes.dtype(), largest_code(x.grid.format.integer())};
}

Accumulator product_sums(Tensor sums, const QuantizedTensor& x, const QuantizedTensor& w,
                         const Variable& bias, int w_axis, int axis, std::int64_t largest_sum) {
  const std::int64_t channels = sums.dim(axis);
  ProductSums out{std::move(sums),
                  {},
                  product_scale(x, w, w_axis, channels),
                  axis,
                  origin_of(x, w, bias, channels, largest_sum)};
  if (bias.defined()) out.bias = bias_codes(bias.tensor(), out.scale, largest_sum, bias_nan_message(w.grid));
  return {std::move(out)};
}

void scale_products(Tensor& y, const Tensor& scale, const Variable& bias) {
  const ProfileScope profile("epilogue");
  if (y.numel() > 0)
    run(y.device(), &Kernels::scale_products, y, scale, bias.defined() ? bias.tensor() : Tensor());
}

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
  const bool bytes = bit_width(x.codes.dtype()) == 8 && !in_blocks(x.grid, x.shape(), "code_factor");
  if (dtype != DType::bf16 || !bytes) return code_values(x).to(dtype);
  Tensor out = Tensor::empty(x.shape(), dtype, device, x.layout());
  run(device, &Kernels::decode, x, out);
  return out;
}

CodeGradients::CodeGradients(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis)
    : x_{x.codes, x.grid, {}}, w_{w.codes, w.grid, {}}, w_axis_(w_axis), type_(backward_type()) {}

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
    codes = QuantizedTensor{q->codes, q->grid, {}};
  else
    floats = Saved(v.as_float().tensor());
}

FloatGradients::FloatGradients(const Variable& x, const Variable& w) : x_(x), w_(w) {
  const auto small = [](const Kept& kept) { return kept.codes && kept.codes->grid.format.bits() <= 8; };
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
  if (!rounds_ || !in_blocks(q.grid, q.shape(), "factor")) return rounded(dequantize(q));
  Tensor out = Tensor::empty(q.shape(), DType::bf16, q.codes.device(), q.layout());
  run(out.device(), &Kernels::dequantize, q, out);
  return out;
}

}  // namespace fq::detail
