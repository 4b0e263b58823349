#include "fakequant/core/ops/detail/code_products.h"

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
  const int code = significand(x.spec.format), scale = x.spec.scale_bits;
  if (codes_are_factors(x, axis)) return code <= bfloat16_bits;
  return scale > 0 && (scale == 1 ? code : code + scale) <= bfloat16_bits;
}

/// Null unless scales of weights are ranges over a bound, whatever sign the weights have.
std::shared_ptr<const ProductOrigin> origin_of(const QuantizedTensor& x, const QuantizedTensor& w,
                                               const Variable& bias, std::int64_t channels,
                                               std::int64_t largest_sum) {
  const QuantSpec& spec = w.spec;
  const bool symmetric = spec.format.lower() == -spec.format.bound();
  const bool ranges = spec.amax.numel() == 1 || spec.amax.numel() == channels;
  if (spec.raised || spec.scale_bits != 0 || !symmetric || !ranges) return nullptr;
  return std::make_shared<const ProductOrigin>(ProductOrigin{
      x.spec.scale, spec.amax, spec.format.bound(), bias.defined() ? bias.tensor() : Tensor(), largest_sum});
}

}  // namespace

bool codes_are_factors(const QuantizedTensor& x, int axis) {
  const auto& by = x.spec.granularity;
  return by.is_per_tensor() || (axis >= 0 && by.single_axis(x.codes.rank()) == axis);
}

Tensor factor_scale(const QuantizedTensor& x, int axis) {
  return codes_are_factors(x, axis)
             ? x.spec.scale
             : Tensor::full({}, static_cast<double>(x.spec.unit), DType::f32, x.codes.device());
}

CodeKind code_kind(const Variable& x, const Variable& w, int w_axis) {
  const auto* a = x.quantized();
  const auto* b = w.quantized();
  if (a == nullptr || b == nullptr) return CodeKind::floats;
  if (small_integer(a->spec.format) && small_integer(b->spec.format) && codes_are_factors(*a, -1) &&
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
  const std::int64_t product = largest_code(x.spec.format.integer()) * largest_code(w.spec.format.integer());
  FQ_CHECK(terms <= most / product, function,
           "a sum of {} products of {} and {} codes may reach {} * {}: int32 holds {} such terms; use fewer "
           "bits or "
           "groups",
           terms, to_string(x.spec.format), to_string(w.spec.format), terms, product, most / product);
  return terms * product;
}

Codes codes_of(const QuantizedTensor& x, const Tensor& codes) {
  return {codes.raw(), codes.dtype(), largest_code(x.spec.format.integer())};
}

Accumulator product_sums(Tensor sums, const QuantizedTensor& x, const QuantizedTensor& w,
                         const Variable& bias, int w_axis, int axis, std::int64_t largest_sum) {
  const std::int64_t channels = sums.dim(axis);
  ProductSums out{std::move(sums),
                  {},
                  product_scale(x, w, w_axis, channels),
                  axis,
                  origin_of(x, w, bias, channels, largest_sum)};
  if (bias.defined()) out.bias = bias_codes(bias.tensor(), out.scale, largest_sum, bias_nan_message(w.spec));
  return {std::move(out)};
}

void scale_products(Tensor& y, const Tensor& scale, const Variable& bias) {
  const ProfileScope profile("epilogue");
  if (y.numel() > 0)
    run(y.device(), &Kernels::scale_products, y, scale, bias.defined() ? bias.tensor() : Tensor());
}

}  // namespace fq::detail
