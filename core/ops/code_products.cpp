#include "fakequant/core/ops/code_products.h"

#include <limits>

#include "fakequant/core/check.h"
#include "fakequant/core/formulas.h"

namespace fq::detail {
namespace {

bool integers_to_multiply(const Format& format) { return format.is_integer() && format.bits() <= 8; }

}  // namespace

CodeKind code_kind(const Variable& x, const Variable& w, int w_axis) {
  const auto* a = x.quantized();
  const auto* b = w.quantized();
  if (a == nullptr || b == nullptr || !a->spec.granularity.is_per_tensor()) return CodeKind::floats;
  const auto& by = b->spec.granularity;
  if (!by.is_per_tensor() && by.single_axis(b->codes.rank()) != w_axis) return CodeKind::floats;
  const Format &f = a->spec.format, &g = b->spec.format;
  if (integers_to_multiply(f) && integers_to_multiply(g)) return CodeKind::integers;
  return !f.is_integer() && !g.is_integer() ? CodeKind::minifloats : CodeKind::floats;
}

Tensor product_scale(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t channels) {
  const bool one = w.spec.granularity.is_per_tensor();
  Tensor out = Tensor::empty(one ? Shape{} : Shape{channels}, DType::f32, x.codes.device());
  if (out.device().is_meta()) return out;
  const float s = x.spec.scale.data<float>()[0];
  const auto* weights = w.spec.scale.data<float>();
  auto* scale = out.mutable_data<float>();
  for (std::int64_t c = 0; c < out.numel(); ++c)
    scale[c] = scalar::mul_(s, weights[c % w.spec.scale.numel()]);
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
                         const Variable& bias, int axis, std::int64_t largest_sum) {
  const std::int64_t channels = sums.dim(axis);
  ProductSums out{std::move(sums), {}, product_scale(x, w, channels), axis};
  if (bias.defined()) out.bias = bias_codes(bias.tensor(), out.scale, largest_sum);
  return {std::move(out)};
}

void scale_products(Tensor& y, const Tensor& scale, const Variable& bias) {
  if (y.device().is_meta() || y.numel() == 0) return;
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
      values[r * channels + c] = values[r * channels + c] * multiply[c * step] + add[c];
}

}  // namespace fq::detail
