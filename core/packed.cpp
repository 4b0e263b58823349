#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/quantized.h"

namespace fq {
namespace {

void check_narrow(DType dtype, const char* function) {
  FQ_CHECK(bit_width(dtype) < 8, function, "codes of {}: use a type of fewer than 8 bits", name(dtype));
}

}  // namespace

Tensor pack_codes(const Tensor& codes, DType dtype) {
  constexpr const char* where = "pack_codes";
  FQ_CHECK(codes.defined(), where, "the codes are undefined");
  FQ_CHECK(codes.dtype() == DType::i8 || codes.dtype() == DType::u8, where, "the codes are {}: use i8 or u8",
           name(codes.dtype()));
  check_narrow(dtype, where);
  Tensor out = Tensor::empty(codes.shape(), dtype, codes.device(), codes.layout());
  detail::run(codes.device(), &detail::Kernels::pack_codes, codes, out);
  return out;
}

Tensor unpack_codes(const Tensor& packed) {
  FQ_CHECK(packed.defined(), "unpack_codes", "the codes are undefined");
  check_narrow(packed.dtype(), "unpack_codes");
  const bool is_signed = packed.dtype() == DType::i2 || packed.dtype() == DType::i4;
  const DType dtype = is_signed ? DType::i8 : DType::u8;
  Tensor out = Tensor::empty(packed.shape(), dtype, packed.device(), packed.layout());
  detail::run(packed.device(), &detail::Kernels::unpack_codes, packed, is_signed, out);
  return out;
}

DType packed_dtype(const Format& format) {
  if (!format.is_integer() || format.bits() > 4) return format.code_dtype();
  const bool is_unsigned = format.integer().is_unsigned;
  if (format.bits() == 2) return is_unsigned ? DType::u2 : DType::i2;
  return is_unsigned ? DType::u4 : DType::i4;
}

}  // namespace fq
