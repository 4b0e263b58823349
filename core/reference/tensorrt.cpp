#include "fakequant/core/reference/tensorrt.h"

#include "fakequant/core/check.h"
#include "fakequant/core/reference/linear.h"

namespace fq::tensorrt {

Tensor quantize(const Tensor& x, const Tensor& scale, DType to_type, int axis) {
  constexpr const char* where = "tensorrt.quantize";
  FQ_CHECK(to_type != DType::u8, where, "to_type u8: use i8, i4 or f8_e4m3");
  return detail::linear_quantize(x, scale, detail::linear_granularity(x.shape(), scale.shape(), axis, where),
                                 to_type, where);
}

Tensor dequantize(const Tensor& codes, const Tensor& scale, DType dtype, int axis) {
  constexpr const char* where = "tensorrt.dequantize";
  return detail::linear_dequantize(
      codes, scale, detail::linear_granularity(codes.shape(), scale.shape(), axis, where), dtype, where);
}

}  // namespace fq::tensorrt
