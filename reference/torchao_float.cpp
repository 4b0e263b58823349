#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/tape.h"
#include "fakequant/reference/detail/block_ranges.h"
#include "fakequant/reference/detail/code_table.h"
#include "fakequant/reference/detail/code_values.h"
#include "fakequant/reference/detail/float_blocks.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {
namespace {

constexpr const char* kChoose = "choose_scale_float8";
constexpr const char* kQuantizeFloat8 = "quantize_affine_float8";
constexpr const char* kDequantizeFloat8 = "dequantize_affine_float8";

Minifloat float_grid(DType float8, const char* function) {
  FQ_CHECK(float8 == DType::f8_e4m3 || float8 == DType::f8_e5m2, function,
           "codes of {}: use f8_e4m3 or f8_e5m2", name(float8));
  return detail::dtype_minifloat(float8);
}

// Returns fl(amax / max) with amax clamped to its bounds, each operation rounded to T.
template <class T>
float float8_scale(float amax, float max, const Float8ScaleOptions& options) {
  using V = detail::Step<T>;
  const auto bound = [](double v) { return detail::rounded<T>(static_cast<float>(v)); };
  if (options.hp_value_lb) amax = scalar::clamp_min(amax, bound(*options.hp_value_lb));
  if (options.hp_value_ub) amax = scalar::clamp_max(amax, bound(*options.hp_value_ub));
  return static_cast<float>(scalar::unit_scale(V{amax}, V{max}));
}

// Returns the nearest power of two, 2^rne(log2(s)), each step rounded to T. Scales stored as E8M0 are such
// powers.
template <class T>
float power_near(float scale) {
  const float exponent = scalar::rint_(detail::rounded<T>(log2_rounded(scale)));
  return detail::rounded<T>(std::exp2(exponent));
}

// Returns the block of elements that share one element of the scale: all of x, or size / parts along each
// axis.
Shape scale_block(const Shape& x, const Tensor& scale, const char* function) {
  if (scale.numel() == 1) return x;
  Shape block = x;
  bool fits = scale.shape().size() == x.size();
  for (std::size_t a = 0; fits && a < x.size(); ++a) {
    const std::int64_t parts = scale.shape()[a];
    fits = parts > 0 && x[a] % parts == 0;
    if (fits) block[a] = x[a] / parts;
  }
  FQ_CHECK(fits, function,
           "the scale is {}, the input {}: use one element, or a scale of the same rank whose sizes divide "
           "the input's",
           to_string(scale.shape()), to_string(x));
  return block;
}

// Returns the scale as f32, which represents f16 and bf16 exactly.
Tensor checked_scales(const Tensor& scale, const char* function) {
  FQ_CHECK(is_floating(scale.dtype()) && scale.dtype() != DType::f64, function,
           "the scale is {}: use f32, f16 or bf16", name(scale.dtype()));
  return scale.to(DType::f32);
}

}  // namespace

Tensor choose_scale_float8(const Tensor& x, const Shape& block_size, DType float8_dtype,
                           const Float8ScaleOptions& options) {
  if (detail::needs_host(x))
    return detail::on_host(choose_scale_float8, x, block_size, float8_dtype, options);
  const float max = float_grid(float8_dtype, kChoose).max;
  FQ_CHECK(is_floating(x.dtype()) && x.dtype() != DType::f64, kChoose,
           "the input is {}: use f32, f16 or bf16", name(x.dtype()));
  FQ_CHECK(options.scale_dtype == DType::f32 || options.scale_dtype == DType::f8_e8m0, kChoose,
           "scale_dtype is {}: use f32 or f8_e8m0", name(options.scale_dtype));
  const Reduction r = reduction(x.shape(), block_size, kChoose);
  check_kept(r, kChoose);
  if (x.device().is_meta()) return Tensor::empty(r.kept, DType::f32, x.device());
  const detail::Ranges ranges = detail::block_ranges(x, r.block, kChoose);
  std::vector<float> scales;
  detail::visit_rounding(x.dtype(), [&]<class T>(T) {
    for (std::size_t i = 0; i < ranges.lower.size(); ++i) {
      // amax = max(hi, -lo). clamp_min keeps a NaN, which block_ranges puts into both bounds.
      const float amax = scalar::clamp_min(ranges.upper[i], -ranges.lower[i]);
      const float scale = float8_scale<T>(amax, max, options);
      scales.push_back(options.scale_dtype == DType::f32 ? scale : power_near<T>(scale));
    }
  });
  return Tensor::from(scales, r.kept);
}

Tensor quantize_affine_float8(const Tensor& x, const Tensor& scale, DType float8_dtype) {
  if (detail::needs_host(x)) return detail::on_host<Tensor>(quantize_affine_float8, x, scale, float8_dtype);
  FQ_CHECK(is_floating(x.dtype()), kQuantizeFloat8, "the input is {}: use a float type", name(x.dtype()));
  const Minifloat grid = float_grid(float8_dtype, kQuantizeFloat8);
  const Shape block = scale_block(x.shape(), scale, kQuantizeFloat8);
  const Tensor scales = checked_scales(scale, kQuantizeFloat8).to(Layout::row_major);
  Tensor codes = Tensor::empty(x.shape(), float8_dtype, x.device());
  if (x.device().is_meta()) return codes;
  auto* to = static_cast<std::uint8_t*>(codes.mutable_raw());
  const auto* s = scales.data<float>();
  detail::visit_chunks(x.to(Layout::row_major), block,
                       [&](const float* in, auto begin, auto count, auto j, auto step) {
                         // Two loops instead of s[j + k * step], so that each vectorises. `step` is 0 or 1.
                         const float *divisors = s + j, divisor = s[j];
                         std::uint8_t* out = to + begin;
                         for (std::int64_t k = 0; step == 0 && k < count; ++k)
                           out[k] = grid.encode(grid.round(scalar::div_(in[k], divisor)));
                         for (std::int64_t k = 0; step != 0 && k < count; ++k)
                           out[k] = grid.encode(grid.round(scalar::div_(in[k], divisors[k])));
                       });
  return codes.to(x.layout());
}

Tensor dequantize_affine_float8(const Tensor& codes, const Tensor& scale, DType dtype) {
  if (detail::needs_host(codes)) return detail::on_host(dequantize_affine_float8, codes, scale, dtype);
  (void)float_grid(codes.dtype(), kDequantizeFloat8);
  FQ_CHECK(is_floating(dtype), kDequantizeFloat8, "the output is {}: use a float type", name(dtype));
  const Shape block = scale_block(codes.shape(), scale, kDequantizeFloat8);
  const Tensor scales = checked_scales(scale, kDequantizeFloat8).to(Layout::row_major);
  Tensor y = Tensor::empty(codes.shape(), dtype, codes.device());
  if (codes.device().is_meta()) return y;
  const auto* s = scales.data<float>();
  detail::map_blocks(codes.to(Layout::row_major), block, y,
                     [&](const float* in, float* out, auto count, auto j, auto step) {
                       for (std::int64_t k = 0; k < count; ++k)
                         out[k] = scalar::dequantize_code(in[k], s[j + k * step]);
                     });
  return y.to(codes.layout());
}

namespace {

// Returns dy / scale where |x / scale| is at most the largest code value, computed in f32 and rounded to the
// type of x. This is the gradient of clamp and division with a straight-through cast.
Tensor float8_gradient(const Tensor& x, const Tensor& scale, const Tensor& dy, DType float8_dtype) {
  const float largest = static_cast<float>(float_grid(float8_dtype, kQuantizeFloat8).max);
  const Tensor scales = checked_scales(scale, kQuantizeFloat8).to(Layout::row_major);
  const Tensor given = dy.to(DType::f32).to(Layout::row_major);
  Tensor dx = Tensor::empty(x.shape(), DType::f32);
  const auto* gradient = given.data<float>();
  auto* out = dx.mutable_data<float>();
  const auto* s = scales.data<float>();
  detail::visit_chunks(x.to(Layout::row_major), scale_block(x.shape(), scale, kQuantizeFloat8),
                       [&](const float* in, auto begin, auto count, auto j, auto step) {
                         for (std::int64_t k = 0; k < count; ++k) {
                           const float divisor = s[j + k * step], t = scalar::div_(in[k], divisor);
                           const bool within = t >= -largest && t <= largest;
                           out[begin + k] = scalar::div_(within ? gradient[begin + k] : 0.0f, divisor);
                         }
                       });
  return dx.to(x.dtype());
}

}  // namespace

Variable quantize_affine_float8(const Variable& x, const Tensor& scale, DType float8_dtype) {
  const Tensor input = x.as_float().tensor();
  const auto backward = [input, scale, float8_dtype](const Tensor& dy) {
    return std::vector<Tensor>{detail::through_host(float8_gradient, input, scale, dy, float8_dtype)};
  };
  return detail::record(kQuantizeFloat8, quantize_affine_float8(input, scale, float8_dtype), {x}, backward);
}

namespace {

// torchao's floatx formats have no NaN and no infinity: every code is a number.
Minifloat float_grid(int ebits, int mbits, const char* function) {
  FQ_CHECK(ebits >= 1 && mbits >= 1 && ebits + mbits <= 7, function,
           "ebits {} and mbits {}: use at least 1 each and 7 together at most", ebits, mbits);
  return Minifloat::finite(ebits, mbits);
}

}  // namespace

Tensor cast_floatx(const Tensor& x, int ebits, int mbits) {
  if (detail::needs_host(x)) return detail::on_host(cast_floatx, x, ebits, mbits);
  constexpr const char* where = "cast_floatx";
  const Minifloat grid = float_grid(ebits, mbits, where);
  FQ_CHECK(x.dtype() == DType::f32, where, "the input is {}: use f32", name(x.dtype()));
  Tensor codes = Tensor::empty(x.shape(), DType::u8, x.device(), x.layout());
  if (x.device().is_meta()) return codes;
  const auto* in = x.data<float>(x.layout());
  auto* out = codes.mutable_data<std::uint8_t>(x.layout());
  detail::encode_bytes(in, x.numel(), grid, out);
  return codes;
}

Tensor decode_floatx(const Tensor& codes, int ebits, int mbits) {
  if (detail::needs_host(codes)) return detail::on_host(decode_floatx, codes, ebits, mbits);
  constexpr const char* where = "decode_floatx";
  const Minifloat grid = float_grid(ebits, mbits, where);
  FQ_CHECK(codes.dtype() == DType::u8, where, "the codes are {}: use u8, one code a byte",
           name(codes.dtype()));
  return detail::decoded(codes, detail::minifloat_table(grid), DType::f32);
}

}  // namespace fq::torchao
