#include "fakequant/reference/tensorrt.h"

#include <algorithm>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/linear.h"

namespace fq::tensorrt {
namespace {

constexpr std::initializer_list<DType> kFloats{DType::f32, DType::f16, DType::bf16};
constexpr std::initializer_list<DType> kCodes{DType::i8, DType::i4, DType::f8_e4m3};

void check_count(const Tensor& t, std::string_view what, const char* function) {
  FQ_CHECK(t.numel() <= std::numeric_limits<std::int32_t>::max(), function,
           "the {} has {} elements, at most 2^31 - 1 are possible: split it", what, t.numel());
}

void check_zeros(const Tensor& zero_point, const Shape& scale, const char* function) {
  FQ_CHECK(zero_point.shape() == scale, function,
           "the zero point is {} and the scale {}: give them one shape", to_string(zero_point.shape()),
           to_string(scale));
  if (zero_point.device().is_meta()) return;
  for (const double z : zero_point.to(DType::f64).to_vector<double>())
    FQ_CHECK(z == 0, function, "the zero point has {}: only zeros are possible", z);
}

detail::LinearGrid grid_of(const Tensor& x, const Tensor& scale, const Constant& zero_point, DType codes,
                           int axis, const char* function) {
  check_count(x, "input", function);
  check_count(scale, "scale", function);
  detail::check_dtype(codes, kCodes, "type of the codes", function);
  detail::check_dtype(scale.dtype(), kFloats, "scale", function);
  if (!scale.device().is_meta())
    for (const float s : scale.to(DType::f32).to_vector<float>())
      FQ_CHECK(s > 0, function, "the scale has {}: it must be above 0", s);
  if (zero_point.defined()) check_zeros(zero_point.tensor(function, "zero point"), scale.shape(), function);
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
      x, grid_of(x, scale.tensor(where, "scale"), zero_point, to_type, axis, where), to_type);
}

Tensor dequantize(const Constant& input, const Constant& scale, DType dtype, int axis,
                  const Constant& zero_point) {
  constexpr const char* where = "tensorrt.dequantize";
  const Tensor codes = input.tensor(where, "input");
  detail::check_dtype(dtype, kFloats, "dtype", where);
  return detail::linear_dequantize(
      codes, grid_of(codes, scale.tensor(where, "scale"), zero_point, codes.dtype(), axis, where), dtype);
}

}  // namespace fq::tensorrt
