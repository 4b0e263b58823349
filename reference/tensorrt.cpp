#include "fakequant/reference/tensorrt.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/linear.h"

namespace fq::tensorrt {
namespace {

constexpr std::initializer_list<DType> kFloats{DType::f32, DType::f16, DType::bf16};
constexpr std::initializer_list<DType> kCodes{DType::i8, DType::i4, DType::f8_e4m3};

// TensorRT limits the number of elements of a tensor to int32.
void check_count(const Tensor& t, std::string_view what, const char* function) {
  FQ_CHECK(t.numel() <= std::numeric_limits<std::int32_t>::max(), function,
           "the {} has {} elements, at most 2^31 - 1 are possible: split it", what, t.numel());
}

void check_zeros(const Tensor& zero_point, const Shape& scale, const char* function) {
  FQ_CHECK(zero_point.shape() == scale, function, "the zero point is {} and the scale {}: use one shape",
           to_string(zero_point.shape()), to_string(scale));
  if (zero_point.device().is_meta()) return;
  for (const double z : zero_point.to(DType::f64).to_vector<double>())
    FQ_CHECK(z == 0, function, "the zero point has {}: only zeros are possible", z);
}

detail::LinearGrid linear_grid(const Tensor& x, const Tensor& scale, const Constant& zero_point, DType codes,
                               int axis, const char* function) {
  check_count(x, "input", function);
  check_count(scale, "scale", function);
  detail::check_dtype(codes, kCodes, "type of the codes", function);
  detail::check_dtype(scale.dtype(), kFloats, "scale", function);
  if (!scale.device().is_meta())
    for (const float s : scale.to(DType::f32).to_vector<float>())
      FQ_CHECK(s > 0, function, "the scale has {}: it must be above 0", s);
  if (zero_point.defined()) check_zeros(zero_point.tensor(function, "zero point"), scale.shape(), function);
  // Rank 2 is TensorRT's form of INT4 blocks along axis 0 (golden/README, onnx.h5). No zero point goes into
  // the grid because only zeros are accepted.
  if (scale.rank() != 2) return {scale, {}, detail::linear_block(x.shape(), scale.shape(), axis, function)};
  FQ_CHECK(codes == DType::i4, function, "the scale {} is one of blocks and the codes are {}: blocks need i4",
           to_string(scale.shape()), name(codes));
  return {scale, {}, detail::rows_block(x.shape(), scale.shape(), function)};
}

}  // namespace

Tensor quantize(const Constant& input, const Constant& scale, DType to_type, int axis,
                const Constant& zero_point) {
  constexpr const char* where = "tensorrt.quantize";
  const Tensor x = input.tensor(where, "input");
  detail::check_dtype(x.dtype(), kFloats, "input", where);
  return detail::linear_quantize(
      x, linear_grid(x, scale.tensor(where, "scale"), zero_point, to_type, axis, where), to_type);
}

Tensor dequantize(const Constant& input, const Constant& scale, DType dtype, int axis,
                  const Constant& zero_point) {
  constexpr const char* where = "tensorrt.dequantize";
  const Tensor codes = input.tensor(where, "input");
  detail::check_dtype(dtype, kFloats, "dtype", where);
  return detail::linear_dequantize(
      codes, linear_grid(codes, scale.tensor(where, "scale"), zero_point, codes.dtype(), axis, where), dtype);
}

float calibration_cache_scale(std::string_view entry) {
  // TensorRT's calibration cache has the bits of the f32 scale as big-endian hexadecimal digits.
  std::uint32_t word = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), word, 16);
  FQ_CHECK(entry.size() == 8 && error == std::errc{} && end == entry.data() + entry.size(),
           "calibration_cache_scale", "the entry '{}' is not eight hexadecimal digits", entry);
  return std::bit_cast<float>(word);
}

std::string calibration_cache_entry_of_scale(float scale) {
  FQ_CHECK(scale >= 0 && std::isfinite(scale), "calibration_cache_entry",
           "the scale is {}: it must be finite and not negative", scale);
  return fmt::format("{:08x}", std::bit_cast<std::uint32_t>(scale));
}

std::string calibration_cache_entry(float amax) {
  FQ_CHECK(amax >= 0 && std::isfinite(amax), "calibration_cache_entry",
           "amax is {}: it must be finite and not negative", amax);
  // TensorRT's INT8 is symmetric: scale = amax / 127.
  return calibration_cache_entry_of_scale(amax / 127.0f);
}

}  // namespace fq::tensorrt

namespace fq::tripy {
namespace {

constexpr std::initializer_list<DType> kCodes{DType::i8, DType::i4, DType::f8_e4m3};

// Tripy's rule: a list needs `dim`, a matrix is a scale of INT4 blocks along axis 0, anything else is per
// tensor.
Shape scale_block(const Shape& x, const Shape& scale, DType codes, std::optional<int> dim,
                  const char* function) {
  if (dim) {
    FQ_CHECK(scale.size() == 1, function,
             "dim is {} and the scale {}: use a list of one for each index of it", *dim, to_string(scale));
    return detail::linear_block(x, scale, *dim, function);
  }
  FQ_CHECK(scale.size() != 1 || scale[0] == 1, function,
           "the scale is a list of {} and dim is missing: name the axis it belongs to", scale[0]);
  if (scale.size() != 2) return detail::linear_block(x, scale, 0, function);
  FQ_CHECK(codes == DType::i4, function, "the scale {} is one of blocks and the codes are {}: blocks need i4",
           to_string(scale), name(codes));
  return detail::rows_block(x, scale, function);
}

}  // namespace

Tensor quantize(const Constant& input, const Constant& scale, DType dtype, std::optional<int> dim) {
  constexpr const char* where = "tripy.quantize";
  const Tensor x = input.tensor(where, "input"), s = scale.tensor(where, "scale", x.dtype());
  detail::check_dtype(x.dtype(), {DType::f32, DType::f16, DType::bf16}, "input", where);
  detail::check_dtype(dtype, kCodes, "dtype", where);
  // Literal scales have the type of x already.
  FQ_CHECK(s.dtype() == x.dtype(), where, "the input is {} and the scale {}: use both in one type",
           name(x.dtype()), name(s.dtype()));
  return detail::linear_quantize(x, {s, {}, scale_block(x.shape(), s.shape(), dtype, dim, where)}, dtype);
}

Tensor dequantize(const Constant& input, const Constant& scale, DType dtype, std::optional<int> dim) {
  constexpr const char* where = "tripy.dequantize";
  const Tensor codes = input.tensor(where, "input"), s = scale.tensor(where, "scale", dtype);
  detail::check_dtype(codes.dtype(), kCodes, "input", where);
  detail::check_dtype(dtype, {DType::f32, DType::f16}, "dtype", where);
  detail::check_dtype(s.dtype(), {DType::f32, DType::f16, DType::bf16}, "scale", where);
  return detail::linear_dequantize(
      codes, {s, {}, scale_block(codes.shape(), s.shape(), codes.dtype(), dim, where)}, dtype);
}

}  // namespace fq::tripy
