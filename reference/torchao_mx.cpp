#include <cmath>
#include <cstring>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/detail/block_ranges.h"
#include "fakequant/reference/detail/block_scales.h"
#include "fakequant/reference/detail/code_values.h"
#include "fakequant/reference/detail/last_axis_blocks.h"
#include "fakequant/reference/detail/rounding.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {
namespace {

constexpr const char* kTo = "to_mx";
constexpr const char* kFrom = "to_dtype";

// Element format of an MX block. `emax` is the exponent of the largest number, `stored` the type of the
// codes.
struct Element {
  Minifloat grid;
  int emax;
  DType stored;
};

Element mx_element(FloatFormat format, const char* function) {
  const auto is = [format](int exponent, int mantissa) { return format == FloatFormat{exponent, mantissa}; };
  // No DType has 6 bits: E3M2 and E2M3 codes are stored one per byte.
  const bool six_bits = is(3, 2) || is(2, 3);
  FQ_CHECK(six_bits || is(4, 3) || is(5, 2) || is(2, 1), function,
           "the element ({}, {}): use (4, 3), (5, 2), (3, 2), (2, 3) or (2, 1)", format.exponent,
           format.mantissa);
  const Minifloat grid = Minifloat::of(format);
  return {grid, std::ilogb(grid.max), six_bits ? DType::u8 : Format(format).code_dtype()};
}

// E8M0 code of a block's scale, and the factor that elements are multiplied by before rounding.
struct Scale {
  std::uint8_t code;
  float factor;
};

// RCEIL: e = ceil(log2(amax / max)), log2 rounded to f32. e = -127 multiplies by 1 as torchao does.
Scale ceil_of_log(float amax, float max) {
  const float ratio = scalar::unit_scale(amax, max);
  if (scalar::is_nan_(ratio)) return {255, ratio};
  const float exponent = scalar::clamp_(std::ceil(log2_rounded(ratio)), -127.0f, 127.0f);
  const auto code = encode_e8m0(static_cast<int>(exponent));
  return {code, code == 0 ? 1.0f : detail::power_of_two(127 - code)};
}

// FLOOR, CEIL and EVEN work on the bits of amax, whose sign is 0. The exponent field has bias 127 like E8M0.
Scale exponent_scale(float amax, const Element& element, ScalingMode mode) {
  auto word = std::bit_cast<std::uint32_t>(amax);
  if (scalar::is_nan_(amax)) return {255, 0.0f};
  // Half a unit of the last mantissa bit of the element format. A carry moves amax to the next power of two.
  if (mode == ScalingMode::even) word += 1u << (22 - element.grid.mantissa);
  int field = static_cast<int>(word >> 23);
  if (mode == ScalingMode::ceil && (word & 0x7fffffu) != 0) ++field;
  const int code = std::clamp(field - element.emax, 0, 255);
  // The divisor is at least 2^-126, the smallest normal float. Code 255 is NaN: the elements become 0.
  return {static_cast<std::uint8_t>(code),
          code == 255 ? 0.0f : detail::power_of_two(127 - std::max(code, 1))};
}

Scale mx_scale(float amax, const Element& element, ScalingMode mode) {
  return mode == ScalingMode::rceil ? ceil_of_log(amax, element.grid.max)
                                    : exponent_scale(amax, element, mode);
}

void check_blocks(const Shape& shape, std::int64_t block_size, DType stored, const char* function) {
  FQ_CHECK(block_size > 0 && !shape.empty() && shape.back() % block_size == 0, function,
           "blocks of {} do not divide the last axis of {}: pad it, or choose a divisor", block_size,
           to_string(shape));
  FQ_CHECK(stored != DType::f4_e2m1 || shape.back() % 2 == 0, function,
           "the last axis of {} is odd, and two codes share a byte: pad it", to_string(shape));
}

Shape per_block(Shape shape, std::int64_t block_size) {
  shape.back() /= block_size;
  return shape;
}

/// The same bytes as a tensor of another one-byte type.
Tensor relabelled(const Tensor& bytes, DType dtype) {
  if (dtype == bytes.dtype()) return bytes;
  Tensor out = Tensor::empty(bytes.shape(), dtype, bytes.device());
  if (bytes.numel() > 0)
    std::memcpy(out.mutable_raw(), bytes.raw(), static_cast<std::size_t>(bytes.nbytes()));
  return out;
}

}  // namespace

ScalingMode scaling_mode(std::string_view name) {
  if (name == "FLOOR") return ScalingMode::floor;
  if (name == "CEIL") return ScalingMode::ceil;
  if (name == "EVEN") return ScalingMode::even;
  FQ_CHECK(name == "RCEIL", kTo, "the scaling mode '{}': use FLOOR, CEIL, EVEN or RCEIL", name);
  return ScalingMode::rceil;
}

ScaledCodes to_mx(const Tensor& x, FloatFormat format, std::int64_t block_size, ScalingMode mode) {
  if (detail::needs_host(x)) return detail::on_host(to_mx, x, format, block_size, mode);
  const Element element = mx_element(format, kTo);
  FQ_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::bf16, kTo, "the input is {}: use f32 or bf16",
           name(x.dtype()));
  check_blocks(x.shape(), block_size, element.stored, kTo);
  Tensor scale = Tensor::empty(per_block(x.shape(), block_size), DType::f8_e8m0, x.device());
  Tensor bytes = Tensor::empty(x.shape(), DType::u8, x.device());
  if (x.device().is_meta()) return {scale, Tensor::empty(x.shape(), element.stored, x.device())};
  // Each block writes its own scale, so threads need no lock. A second pass encodes whole chunks of blocks,
  // which vectorises for short blocks too.
  auto* scales = static_cast<std::uint8_t*>(scale.mutable_raw());
  detail::map_block_groups(
      x.to(Layout::row_major), block_size, bytes,
      [&](const float* in, float* out, auto count, auto j) {
        const Scale s = mx_scale(detail::largest_magnitude(in, count), element, mode);
        scales[j] = s.code;
        for (std::int64_t k = 0; k < count; ++k) out[k] = scalar::mul_(in[k], s.factor);
      },
      [&](float* scaled, auto count) { detail::encode_floats(scaled, count, element.grid); });
  const bool packs = element.stored == DType::f4_e2m1;
  return {scale, packs ? pack_codes(bytes, element.stored) : relabelled(bytes, element.stored)};
}

Tensor to_dtype(const ScaledCodes& mx, FloatFormat format, std::int64_t block_size, DType dtype) {
  if (detail::needs_host(mx.scale))
    return to_dtype(detail::moved(mx, Device::cpu()), format, block_size, dtype).to(mx.scale.device());
  const Element element = mx_element(format, kFrom);
  const Tensor &scale = mx.scale, codes = mx.codes.to(Layout::row_major);
  FQ_CHECK(codes.dtype() == element.stored && scale.dtype() == DType::f8_e8m0, kFrom,
           "codes of {} and scales of {}: use {} and f8_e8m0", name(codes.dtype()), name(scale.dtype()),
           name(element.stored));
  FQ_CHECK(is_floating(dtype), kFrom, "the output is {}: use a float type", name(dtype));
  check_blocks(codes.shape(), block_size, element.stored, kFrom);
  FQ_CHECK(scale.shape() == per_block(codes.shape(), block_size), kFrom,
           "the scales are {}: use {}, one a block", to_string(scale.shape()),
           to_string(per_block(codes.shape(), block_size)));
  Tensor y = Tensor::empty(codes.shape(), dtype, codes.device());
  if (codes.device().is_meta()) return y;
  // The other formats have a DType, whose codes map_last_axis_blocks decodes.
  const bool six_bits = element.stored == DType::u8;
  const Tensor values = six_bits ? decode_floatx(codes, format.exponent, format.mantissa) : codes;
  const auto* scales = static_cast<const std::uint8_t*>(scale.raw());
  detail::map_last_axis_blocks(values, block_size, y, [&](const float* in, float* out, auto count, auto j) {
    // torchao converts the scale to the output type first. f16 has no powers below 2^-24 or above 2^15.
    const float factor = detail::rounded_value(dtype, decode_e8m0(scales[j]));
    for (std::int64_t k = 0; k < count; ++k) out[k] = scalar::dequantize_code(in[k], factor);
  });
  return y;
}

namespace {

constexpr const char* kNvfp4Quantize = "nvfp4_quantize";
constexpr std::int64_t block_size = 16;

void check(const Tensor& x, const Tensor& per_tensor_scale) {
  FQ_CHECK(x.dtype() == DType::f32 || x.dtype() == DType::bf16, kNvfp4Quantize,
           "the input is {}: use f32 or bf16", name(x.dtype()));
  FQ_CHECK(x.rank() >= 2 && x.dim(-1) % block_size == 0, kNvfp4Quantize,
           "the input {} needs 2 axes or more, the last one divisible by {}: pad it", to_string(x.shape()),
           block_size);
  if (!per_tensor_scale.defined()) return;
  const Shape& shape = per_tensor_scale.shape();
  const bool by_row = shape == Shape{x.dim(0), 1} || shape == Shape{x.dim(0), 1, 1};
  FQ_CHECK(per_tensor_scale.numel() == 1 || by_row, kNvfp4Quantize,
           "per_tensor_scale is {}: use one element, or [{}, 1]", to_string(shape), x.dim(0));
  FQ_CHECK(per_tensor_scale.dtype() == DType::f32, kNvfp4Quantize, "per_tensor_scale is {}: use f32",
           name(per_tensor_scale.dtype()));
}

}  // namespace

ScaledCodes nvfp4_quantize(const Tensor& x, const Tensor& per_tensor_scale) {
  if (detail::needs_host(x)) return detail::on_host(nvfp4_quantize, x, per_tensor_scale);
  check(x, per_tensor_scale);
  const std::int64_t rows = x.dim(0), blocks = rows == 0 ? 0 : x.numel() / rows / block_size;
  Tensor scale = Tensor::empty({rows, blocks}, DType::f8_e4m3, x.device());
  if (x.device().is_meta()) return {scale, Tensor::empty(x.shape(), DType::f4_e2m1, x.device())};
  Tensor bytes = Tensor::empty(x.shape(), DType::u8, x.device());
  auto* scales = static_cast<std::uint8_t*>(scale.mutable_raw());
  const bool given = per_tensor_scale.defined();
  const float one = 1.0f, *outer = given ? per_tensor_scale.data<float>() : &one;
  // Number of consecutive blocks that share one outer scale. A single scale is shared by all.
  const std::int64_t shared =
      given && per_tensor_scale.numel() > 1 ? blocks : std::max<std::int64_t>(x.numel(), 1);
  const Minifloat e2m1 = Minifloat::of({2, 1}), e4m3 = Minifloat::of({4, 3});
  detail::map_block_groups(
      x.to(Layout::row_major), block_size, bytes,
      [&](const float* in, float* out, auto count, auto j) {
        const float p = outer[j / shared];
        const float s = scalar::torchao_nvfp4_scale(detail::largest_magnitude(in, count), p);
        scales[j] = e4m3.encode(s);
        // Order of torchao: x * ((1 / p) / s), three roundings.
        const float factor = scalar::div_(scalar::div_(1.0f, p), s);
        for (std::int64_t k = 0; k < count; ++k) out[k] = scalar::mul_(in[k], factor);
      },
      [&](float* scaled, auto count) { detail::encode_floats(scaled, count, e2m1); });
  return {scale, pack_codes(bytes, DType::f4_e2m1)};
}

}  // namespace fq::torchao
