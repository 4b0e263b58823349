#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/clipped.h"
#include "fakequant/reference/kernels/kernels.h"
#include "fakequant/reference/modelopt.h"

namespace fq::modelopt {
namespace {

using detail::ReferenceKernels;

constexpr const char* kScales = "compute_fp4_scales";
constexpr const char* kStatic = "static_blockwise_fp4_fake_quant";
constexpr const char* kFp4Cast = "fp4_cast_ste";

bool is_narrow_float(DType dtype) { return is_floating(dtype) && dtype != DType::f64; }

DType output_type(const Tensor& x, std::optional<DType> out_dtype, const char* function) {
  FQ_CHECK(x.defined() && is_narrow_float(x.dtype()), function, "the input is {}: use f32, f16 or bf16",
           x.describe());
  const DType out = out_dtype.value_or(x.dtype());
  FQ_CHECK(is_narrow_float(out), function, "the output type is {}: use f32, f16 or bf16", name(out));
  return out;
}

// A NaN stays the largest: after it every comparison is false.
float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float v : values) largest = std::isnan(v) || std::fabs(v) > largest ? std::fabs(v) : largest;
  return largest;
}

// Range of the block scales: the largest scale, global / 6, maps to the largest E4M3 number. The factor is 1
// by default.
float scale_range(const Amax& amax, const Amax& global_amax, double fp8_max) {
  FQ_CHECK(fp8_max > 0, kScales, "fp8_max_for_normalization is {}: it must be positive, as 448 or 256",
           fp8_max);
  FQ_CHECK(!global_amax.defined() || global_amax.values().size() == 1, kScales,
           "global_amax has {} elements: use one, or none for the largest of amax",
           global_amax.values().size());
  const float global = global_amax.defined() ? global_amax.values()[0] : largest_magnitude(amax.values());
  return global * static_cast<float>(448.0 / fp8_max) / 6.0f;
}

// Returns x as [blocks, length], row-major.
Tensor block_rows(const Tensor& x, const Amax& amax) {
  FQ_CHECK(amax.defined(), kStatic, "amax is missing: use one for each block");
  const auto blocks = static_cast<std::int64_t>(amax.values().size());
  FQ_CHECK(blocks > 0 && x.numel() % blocks == 0, kStatic,
           "amax has {} elements and the input {}: they must be blocks of equal length", blocks, x.numel());
  return x.to(Layout::row_major).reshape({blocks, x.numel() / blocks});
}

// Returns y and, if `masked`, the mask, in the shape of x.
detail::Masked quantized(const Tensor& x, const Amax& amax, const Tensor& scales, DType out_dtype,
                         bool masked) {
  const Tensor rows = block_rows(x, amax);
  // The kernel writes the type of its input, so another output type is rounded from f32.
  const Tensor in = rows.dtype() == out_dtype ? rows : rows.to(DType::f32);
  Tensor y = Tensor::empty(in.shape(), in.dtype(), x.device());
  Tensor mask = masked ? Tensor::empty(in.shape(), DType::u1, x.device()) : Tensor();
  detail::run(x.device(), &ReferenceKernels::fake_quant_fp4, in, scales,
              detail::comparison_bound(x.dtype(), amax.tensor()), y, masked ? &mask : nullptr);
  if (masked) mask = mask.reshape(x.shape());
  return {y.to(out_dtype).reshape(x.shape()).to(x.layout()), mask};
}

// A cast to E2M1 is one block with scale 1 and amax 6.
detail::Masked cast(const Tensor& x, DType out_dtype, bool masked) {
  const Tensor in = x.dtype() == out_dtype ? x : x.to(DType::f32);
  detail::Masked out{Tensor::empty(x.shape(), in.dtype(), x.device(), x.layout()), {}};
  if (masked) out.mask = Tensor::empty(x.shape(), DType::u1, x.device(), x.layout());
  detail::run(x.device(), &ReferenceKernels::fake_quant_fp4, in, Tensor::scalar(1), Tensor::scalar(6), out.y,
              masked ? &out.mask : nullptr);
  out.y = out.y.to(out_dtype);
  return out;
}

}  // namespace

Tensor compute_fp4_scales(const Amax& amax, const Amax& global_amax, bool quantize_block_scales,
                          double fp8_max_for_normalization) {
  FQ_CHECK(amax.defined(), kScales, "amax is missing: use one for each block");
  const float range = scale_range(amax, global_amax, fp8_max_for_normalization);
  const float outer = scalar::modelopt_e4m3_scale(range);
  Tensor out = amax.tensor();
  auto* s = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    // 6 is the largest E2M1 number.
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
  return quantized(x, amax, scales, dtype, false).y;
}

Variable static_blockwise_fp4_fake_quant(const Variable& x, const Amax& amax, const Amax& global_amax,
                                         bool quantize_block_scales, double fp8_max_for_normalization,
                                         std::optional<DType> out_dtype, bool pass_through_bwd) {
  const Variable v = x.as_float();
  const DType dtype = output_type(v.tensor(), out_dtype, kStatic);
  const Tensor scales =
      compute_fp4_scales(amax, global_amax, quantize_block_scales, fp8_max_for_normalization);
  const bool masked = detail::needs_grad({v}) && !pass_through_bwd;
  detail::Masked out = quantized(v.tensor(), amax, scales, dtype, masked);
  return detail::record_clipped(kStatic, v, std::move(out.y), std::move(out.mask));
}

Tensor fp4_cast_ste(const Tensor& x, std::optional<DType> out_dtype) {
  return cast(x, output_type(x, out_dtype, kFp4Cast), false).y;
}

Variable fp4_cast_ste(const Variable& x, std::optional<DType> out_dtype) {
  const Variable v = x.as_float();
  detail::Masked out =
      cast(v.tensor(), output_type(v.tensor(), out_dtype, kFp4Cast), detail::needs_grad({v}));
  return detail::record_clipped(kFp4Cast, v, std::move(out.y), std::move(out.mask));
}

}  // namespace fq::modelopt
