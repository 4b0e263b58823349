#include "fakequant/core/reference/modelopt_blocks.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/check.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/reference/clipped.h"
#include "fakequant/core/reference/last_axis_blocks.h"
#include "fakequant/core/tape.h"

namespace fq::modelopt {
namespace {

constexpr const char* kScales = "compute_fp4_scales";
constexpr const char* kStatic = "static_blockwise_fp4_fake_quant";
constexpr const char* kCast = "fp4_cast_ste";

bool is_narrow_float(DType dtype) { return is_floating(dtype) && dtype != DType::f64; }

DType output_type(const Tensor& x, std::optional<DType> out_dtype, const char* function) {
  FQ_CHECK(x.defined() && is_narrow_float(x.dtype()), function, "the input is {}: give f32, f16 or bf16",
           x.describe());
  const DType out = out_dtype.value_or(x.dtype());
  FQ_CHECK(is_narrow_float(out), function, "the output is to be {}: ask for f32, f16 or bf16", name(out));
  return out;
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) largest = std::isnan(v) || std::fabs(v) > largest ? std::fabs(v) : largest;
  return largest;
}

float scale_range(const Amax& amax, const Amax& global_amax, double fp8_max) {
  FQ_CHECK(fp8_max > 0, kScales, "fp8_max_for_normalization is {}: it must be positive, as 448 or 256",
           fp8_max);
  FQ_CHECK(!global_amax.defined() || global_amax.values().size() == 1, kScales,
           "global_amax has {} elements: give one, or none to take the largest of amax",
           global_amax.values().size());
  const float global = global_amax.defined() ? global_amax.values()[0] : largest_magnitude(amax.values());
  return global * static_cast<float>(448.0 / fp8_max) / 6.0f;
}

/// x as [blocks, length], row-major.
Tensor blocks_of(const Tensor& x, const Amax& amax) {
  FQ_CHECK(amax.defined(), kStatic, "amax is missing: give one for each block");
  const auto blocks = static_cast<std::int64_t>(amax.values().size());
  FQ_CHECK(blocks > 0 && x.numel() % blocks == 0, kStatic,
           "amax has {} elements and the input {}: they must be blocks of equal length", blocks, x.numel());
  return x.to(Layout::row_major).reshape({blocks, x.numel() / blocks});
}

Tensor restored(const Tensor& y, const Tensor& x) { return y.reshape(x.shape()).to(x.layout()); }

Tensor quantized(const Tensor& x, const Amax& amax, const Tensor& scales, DType out_dtype) {
  const Tensor blocks = blocks_of(x, amax);
  Tensor y = Tensor::empty(blocks.shape(), out_dtype, x.device());
  if (x.device().is_meta()) return restored(y, x);
  const auto* s = scales.data<float>();
  const std::int64_t length = std::max<std::int64_t>(blocks.dim(1), 1);
  detail::map_last_axis_blocks(blocks, length, y, [s](const float* in, float* out, auto count, auto j) {
    if (s[j] == 0) return std::fill_n(out, count, 0.0f), void();
    const float divisor = scalar::fp4_divisor(s[j]);
    for (std::int64_t i = 0; i < count; ++i) out[i] = scalar::fp4_fake_quant(in[i], divisor);
  });
  return restored(y, x);
}

Tensor block_mask(const Tensor& x, const Amax& amax) {
  const Tensor range = amax.shape().empty() ? amax.tensor() : amax.tensor().reshape({-1, 1});
  return detail::within_amax(blocks_of(x, amax), range, kStatic).reshape(x.shape());
}

Tensor cast(const Tensor& x, DType out_dtype) {
  const Tensor in = x.to(Layout::row_major);
  Tensor y = Tensor::empty(x.shape(), out_dtype, x.device());
  if (!x.device().is_meta())
    detail::map_last_axis_blocks(in.reshape({-1}), detail::chunk_elements, y,
                                 [](const float* v, float* out, auto count, auto) {
                                   for (std::int64_t i = 0; i < count; ++i)
                                     out[i] = scalar::fp4_signed(v[i], scalar::e2m1_magnitude(v[i]));
                                 });
  return y.to(x.layout());
}

}  // namespace

Tensor compute_fp4_scales(const Amax& amax, const Amax& global_amax, bool quantize_block_scales,
                          double fp8_max_for_normalization) {
  FQ_CHECK(amax.defined(), kScales, "amax is missing: give one for each block");
  const float range = scale_range(amax, global_amax, fp8_max_for_normalization);
  const float outer = scalar::modelopt_e4m3_scale(range);
  Tensor out = amax.tensor();
  auto* s = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    s[i] /= 6.0f;
    if (quantize_block_scales) s[i] = scalar::modelopt_scaled_e4m3(s[i], outer, 1.0f / outer);
  }
  return out;
}

Tensor static_blockwise_fp4_fake_quant(const Tensor& x, const Amax& amax, const Amax& global_amax,
                                       bool quantize_block_scales, double fp8_max_for_normalization,
                                       std::optional<DType> out_dtype, bool) {
  const DType dtype = output_type(x, out_dtype, kStatic);
  const Tensor scales =
      compute_fp4_scales(amax, global_amax, quantize_block_scales, fp8_max_for_normalization);
  return quantized(x, amax, scales, dtype);
}

Variable static_blockwise_fp4_fake_quant(const Variable& x, const Amax& amax, const Amax& global_amax,
                                         bool quantize_block_scales, double fp8_max_for_normalization,
                                         std::optional<DType> out_dtype, bool pass_through_bwd) {
  const Variable v = x.as_float();
  Tensor y = static_blockwise_fp4_fake_quant(v.tensor(), amax, global_amax, quantize_block_scales,
                                             fp8_max_for_normalization, out_dtype);
  const bool masked = detail::needs_grad({v}) && !pass_through_bwd;
  return detail::record_clipped(kStatic, v, std::move(y), masked ? block_mask(v.tensor(), amax) : Tensor());
}

Tensor fp4_cast_ste(const Tensor& x, std::optional<DType> out_dtype) {
  return cast(x, output_type(x, out_dtype, kCast));
}

Variable fp4_cast_ste(const Variable& x, std::optional<DType> out_dtype) {
  const Variable v = x.as_float();
  Tensor y = fp4_cast_ste(v.tensor(), out_dtype);
  const bool masked = detail::needs_grad({v});
  return detail::record_clipped(
      kCast, v, std::move(y), masked ? detail::within_amax(v.tensor(), Tensor::scalar(6), kCast) : Tensor());
}

}  // namespace fq::modelopt
