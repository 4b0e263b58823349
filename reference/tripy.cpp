#include "fakequant/reference/tripy.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/linear.h"

namespace fq::tripy {
namespace {

constexpr std::initializer_list<DType> kCodes{DType::i8, DType::i4, DType::f8_e4m3};

Shape block_of(const Shape& x, const Shape& scale, DType codes, std::optional<int> dim,
               const char* function) {
  if (dim) {
    FQ_CHECK(scale.size() == 1, function,
             "dim is {} and the scale {}: give a list of one for each index of it", *dim, to_string(scale));
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
  FQ_CHECK(s.dtype() == x.dtype(), where, "the input is {} and the scale {}: give both in one type",
           name(x.dtype()), name(s.dtype()));
  return detail::linear_quantize(x, {s, {}, block_of(x.shape(), s.shape(), dtype, dim, where)}, dtype);
}

Tensor dequantize(const Constant& input, const Constant& scale, DType dtype, std::optional<int> dim) {
  constexpr const char* where = "tripy.dequantize";
  const Tensor codes = input.tensor(where, "input"), s = scale.tensor(where, "scale", dtype);
  detail::check_dtype(codes.dtype(), kCodes, "input", where);
  detail::check_dtype(dtype, {DType::f32, DType::f16}, "dtype", where);
  detail::check_dtype(s.dtype(), {DType::f32, DType::f16, DType::bf16}, "scale", where);
  return detail::linear_dequantize(
      codes, {s, {}, block_of(codes.shape(), s.shape(), codes.dtype(), dim, where)}, dtype);
}

}  // namespace fq::tripy
