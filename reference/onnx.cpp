#include "fakequant/reference/onnx.h"

#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/detail/linear.h"

namespace fq::onnx {
namespace {

constexpr std::initializer_list<DType> kFloats{DType::f32, DType::f16, DType::bf16};

// Returns the block that shares a scale. The last block along the axis may be partial, so sizes round up.
Shape scale_block(const Shape& x, const Shape& scale, int axis, std::int64_t size, const char* function) {
  FQ_CHECK(size >= 0, function, "block_size is {}: use a length, or 0 for no blocks", size);
  if (size == 0) return detail::linear_block(x, scale, axis, function);
  FQ_CHECK(x.size() >= 2, function, "block_size is {} and the input {}: blocks need 2 axes", size,
           to_string(x));
  const auto along = static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(x.size()), function));
  Shape block(x.size(), 1), expected = x;
  block[along] = size;
  expected[along] = (x[along] + size - 1) / size;
  FQ_CHECK(scale == expected, function, "the scale is {}, blocks of {} along axis {} of {} need {}",
           to_string(scale), size, along, to_string(x), to_string(expected));
  return block;
}

// ONNX allows only 0 for float codes and for int32, and integers of the type of the codes otherwise.
void check_zero_point(const Tensor& z, DType codes, const char* function) {
  if (z.device().is_meta()) return;
  const bool only_zero = detail::is_minifloat(codes) || codes == DType::i32;
  const IntFormat format = only_zero ? IntFormat{} : detail::integer_format(codes);
  const double lower = only_zero ? 0 : format.lower(), upper = only_zero ? 0 : format.upper();
  // Two or four codes share a byte in types below 8 bits.
  const Tensor own = z.to(Device::cpu()), bytes = bit_width(own.dtype()) < 8 ? unpack_codes(own) : own;
  if (is_storage_only(bytes.dtype())) {
    const auto* code = static_cast<const std::uint8_t*>(bytes.raw());
    for (std::int64_t i = 0; i < bytes.numel(); ++i)
      // Without the sign bit: -0 is a zero too.
      FQ_CHECK((code[i] & ((1u << (bit_width(codes) - 1)) - 1)) == 0, function,
               "the zero point of {} is not 0: it must be", name(codes));
    return;
  }
  for (const double v : bytes.to(DType::f64).to_vector<double>())
    FQ_CHECK(v == std::rint(v) && v >= lower && v <= upper, function,
             "the zero point of {} has {}: use integers from {} to {}", name(codes), v, lower, upper);
}

detail::LinearGrid linear_grid(const Shape& x, const Tensor& scale, const Constant& zero_point, DType codes,
                               int axis, std::int64_t block_size, const char* function) {
  detail::check_dtype(scale.dtype(), kFloats, "scale", function);
  detail::LinearGrid grid{scale, {}, scale_block(x, scale.shape(), axis, block_size, function)};
  if (!zero_point.defined()) return grid;
  grid.zero_point = zero_point.tensor(function, "zero point", DType::f64);
  const Tensor& z = grid.zero_point;
  // Numbers in the call have no type of their own; a tensor must have the type of the codes.
  FQ_CHECK(zero_point.is_literal() || z.dtype() == codes, function,
           "the zero point is {} and the codes are {}: use both in one type", name(z.dtype()), name(codes));
  FQ_CHECK(z.shape() == scale.shape() || (z.numel() == 1 && scale.numel() == 1), function,
           "the zero point is {} and the scale {}: use one shape", to_string(z.shape()),
           to_string(scale.shape()));
  check_zero_point(z, codes, function);
  return grid;
}

}  // namespace

Tensor quantize_linear(const Constant& x, const Constant& scale, const Constant& zero_point, int axis,
                       std::int64_t block_size, bool saturate, std::optional<DType> output_dtype) {
  constexpr const char* where = "onnx.quantize_linear";
  const Tensor v = x.tensor(where, "input");
  detail::check_dtype(v.dtype(), {DType::f32, DType::f16, DType::bf16, DType::i32}, "input", where);
  const Tensor s = scale.tensor(where, "scale", v.dtype() == DType::i32 ? DType::f32 : v.dtype());
  FQ_CHECK(s.dtype() == v.dtype() || v.dtype() == DType::i32, where,
           "the input is {} and the scale {}: use both in one type", name(v.dtype()), name(s.dtype()));
  // ONNX takes the output type from the zero point, and uint8 if there is none.
  const bool typed = zero_point.defined() && !zero_point.is_literal();
  const DType codes =
      output_dtype.value_or(typed ? zero_point.tensor(where, "zero point").dtype() : DType::u8);
  detail::check_dtype(codes,
                      {DType::i8, DType::u8, DType::i16, DType::u16, DType::i2, DType::u2, DType::i4,
                       DType::u4, DType::f8_e4m3, DType::f8_e5m2, DType::f4_e2m1},
                      "output_dtype", where);
  return detail::linear_quantize(v, linear_grid(v.shape(), s, zero_point, codes, axis, block_size, where),
                                 codes, saturate);
}

Tensor dequantize_linear(const Constant& codes, const Constant& scale, const Constant& zero_point, int axis,
                         std::int64_t block_size, std::optional<DType> output_dtype) {
  constexpr const char* where = "onnx.dequantize_linear";
  const Tensor q = codes.tensor(where, "input"), s = scale.tensor(where, "scale");
  detail::check_dtype(q.dtype(),
                      {DType::i8, DType::u8, DType::i16, DType::u16, DType::i32, DType::i2, DType::u2,
                       DType::i4, DType::u4, DType::f8_e4m3, DType::f8_e5m2, DType::f4_e2m1},
                      "input", where);
  const DType dtype = output_dtype.value_or(s.dtype());
  detail::check_dtype(dtype, kFloats, "output_dtype", where);
  return detail::linear_dequantize(
      q, linear_grid(q.shape(), s, zero_point, q.dtype(), axis, block_size, where), dtype);
}

}  // namespace fq::onnx
