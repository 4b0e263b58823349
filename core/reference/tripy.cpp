#include "fakequant/core/reference/tripy.h"

#include "fakequant/core/check.h"
#include "fakequant/core/reference/linear.h"

namespace fq::tripy {
namespace {

Granularity granularity(const Tensor& x, const Tensor& scale, std::optional<int> dim, const char* function) {
  FQ_CHECK(dim || scale.rank() != 1 || scale.numel() == 1, function,
           "the scale is a list of {} and dim is missing: name the axis it belongs to", scale.numel());
  return detail::linear_granularity(x.shape(), scale.shape(), dim.value_or(0), function);
}

}  // namespace

Tensor quantize(const Tensor& x, const Tensor& scale, DType dtype, std::optional<int> dim) {
  constexpr const char* where = "tripy.quantize";
  FQ_CHECK(dtype != DType::u8, where, "dtype u8: use i8, i4 or f8_e4m3");
  return detail::linear_quantize(x, scale, granularity(x, scale, dim, where), dtype, where);
}

Tensor dequantize(const Tensor& codes, const Tensor& scale, DType dtype, std::optional<int> dim) {
  constexpr const char* where = "tripy.dequantize";
  return detail::linear_dequantize(codes, scale, granularity(codes, scale, dim, where), dtype, where);
}

}  // namespace fq::tripy
