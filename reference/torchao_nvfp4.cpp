#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/detail/encode_runs.h"
#include "fakequant/reference/detail/last_axis_blocks.h"
#include "fakequant/reference/detail/ranges.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/torchao_float.h"

namespace fq::torchao {
namespace {

constexpr const char* kNvfp4Quantize = "nvfp4_quantize";
constexpr std::int64_t block_size = 16;

void check(const Tensor& x, const Tensor& per_tensor_scale) {
  FQ_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::bf16, kNvfp4Quantize,
           "the input is {}: give f32 or bf16", name(x.dtype()));
  FQ_CHECK(x.rank() >= 2 && x.dim(-1) % block_size == 0, kNvfp4Quantize,
           "the input {} needs 2 axes or more, the last one divisible by {}: pad it", to_string(x.shape()),
           block_size);
  if (!per_tensor_scale.defined()) return;
  const Shape& shape = per_tensor_scale.shape();
  const bool by_row = shape == Shape{x.dim(0), 1} || shape == Shape{x.dim(0), 1, 1};
  FQ_CHECK(per_tensor_scale.numel() == 1 || by_row, kNvfp4Quantize,
           "per_tensor_scale is {}: give one element, or [{}, 1]", to_string(shape), x.dim(0));
  FQ_CHECK(per_tensor_scale.dtype() == DType::f32, kNvfp4Quantize, "per_tensor_scale is {}: give f32",
           name(per_tensor_scale.dtype()));
}

namespace host {

ScaledCodes nvfp4_quantize(const Tensor& x, const Tensor& per_tensor_scale) {
  check(x, per_tensor_scale);
  const std::int64_t rows = x.dim(0), blocks = rows == 0 ? 0 : x.numel() / rows / block_size;
  Tensor scale = Tensor::empty({rows, blocks}, DType::f8_e4m3, x.device());
  if (x.device().is_meta()) return {scale, Tensor::empty(x.shape(), DType::f4_e2m1, x.device())};
  Tensor bytes = Tensor::empty(x.shape(), DType::u8, x.device());
  auto* scales = static_cast<std::uint8_t*>(scale.mutable_raw());
  const bool given = per_tensor_scale.defined();
  const float one = 1.0f, *outer = given ? per_tensor_scale.data<float>() : &one;
  const std::int64_t shared =
      given && per_tensor_scale.numel() > 1 ? blocks : std::max<std::int64_t>(x.numel(), 1);
  const Minifloat e2m1 = Minifloat::of({2, 1}), e4m3 = Minifloat::of({4, 3});
  detail::map_block_groups(
      x.to(Layout::row_major), block_size, bytes,
      [&](const float* in, float* out, auto count, auto j) {
        const float p = outer[j / shared];
        const float s = scalar::torchao_nvfp4_scale(detail::largest_magnitude(in, count), p);
        scales[j] = e4m3.encode(s);
        const float factor = scalar::div_(scalar::div_(1.0f, p), s);
        for (std::int64_t k = 0; k < count; ++k) out[k] = scalar::mul_(in[k], factor);
      },
      [&](float* scaled, auto count) { detail::encode_floats(scaled, count, e2m1); });
  return {scale, pack_codes(bytes, DType::f4_e2m1)};
}

}  // namespace host
}  // namespace

ScaledCodes nvfp4_quantize(const Tensor& x, const Tensor& per_tensor_scale) {
  return detail::through_host(host::nvfp4_quantize, x, per_tensor_scale);
}

}  // namespace fq::torchao
