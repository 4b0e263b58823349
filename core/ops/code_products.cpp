#include "fakequant/core/ops/code_products.h"

#include <limits>

#include "fakequant/core/check.h"
#include "fakequant/core/cuda/code_products.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/sum_formulas.h"

namespace fq::detail {
namespace {

bool small_integer(const Format& format) { return format.is_integer() && format.bits() <= 8; }

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
  if (out.device().is_cuda()) cuda::product_scale(s_x, s_w, out);
  if (!out.device().is_cpu()) return out;
  auto* scale = out.mutable_data<float>();
  for (std::int64_t c = 0; c < out.numel(); ++c)
    scale[c] = scalar::mul_(s_x.data<float>()[0], s_w.data<float>()[c % s_w.numel()]);
  return out;
}

std::int64_t largest_sum(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t terms,
                         std::string_view function) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const std::int64_t product =
      cpu::largest_code(x.spec.format.integer()) * cpu::largest_code(w.spec.format.integer());
  FQ_CHECK(terms <= most / product, function,
           "a sum of {} products of {} and {} codes may reach {} * {}: int32 holds {} such terms; use fewer "
           "bits or "
           "groups",
           terms, to_string(x.spec.format), to_string(w.spec.format), terms, product, most / product);
  return terms * product;
}

cpu::Codes codes_of(const QuantizedTensor& x, const Tensor& codes) {
  return {codes.raw(), codes.dtype(), cpu::largest_code(x.spec.format.integer())};
}

Accumulator product_sums(Tensor sums, const QuantizedTensor& x, const QuantizedTensor& w,
                         const Variable& bias, int w_axis, int axis, std::int64_t largest_sum) {
  const std::int64_t channels = sums.dim(axis);
  ProductSums out{std::move(sums), {}, product_scale(x, w, w_axis, channels), axis};
  if (bias.defined()) out.bias = bias_codes(bias.tensor(), out.scale, largest_sum);
  return {std::move(out)};
}

void scale_products(Tensor& y, const Tensor& scale, const Variable& bias) {
  const ProfileScope profile("epilogue");
  if (y.device().is_meta() || y.numel() == 0) return;
  if (y.device().is_cuda()) return cuda::scale_products(y, scale, bias.defined() ? bias.tensor() : Tensor());
  const std::int64_t channels = y.layout() == Layout::channels_last ? y.dim(1) : y.dim(-1);
  const std::int64_t rows = y.numel() / channels;
  const Tensor b = bias.defined() ? bias.tensor() : Tensor::zeros({channels});
  const auto* add = b.data<float>();
  const auto* multiply = scale.data<float>();
  const std::int64_t step = scale.numel() == 1 ? 0 : 1;
  auto* values = y.mutable_data<float>(y.layout());
#pragma omp parallel for schedule(static) if (rows * channels > 32768)
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < channels; ++c)
      values[r * channels + c] = scaled_product(values[r * channels + c], multiply[c * step], add[c]);
}

}  // namespace fq::detail
