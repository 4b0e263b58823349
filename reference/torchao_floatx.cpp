#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/code_table.h"
#include "fakequant/reference/detail/encode_runs.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/torchao_float.h"

namespace fq::torchao {
namespace {

Minifloat grid_of(int ebits, int mbits, const char* function) {
  FQ_CHECK(ebits >= 1 && mbits >= 1 && ebits + mbits <= 7, function,
           "ebits {} and mbits {}: give at least 1 each and 7 together at most", ebits, mbits);
  return Minifloat::finite(ebits, mbits);
}

namespace host {

Tensor cast_floatx(const Tensor& x, int ebits, int mbits) {
  constexpr const char* where = "cast_floatx";
  const Minifloat grid = grid_of(ebits, mbits, where);
  FQ_CHECK(x.dtype() == DType::f32, where, "the input is {}: give f32", name(x.dtype()));
  Tensor codes = Tensor::empty(x.shape(), DType::u8, x.device(), x.layout());
  if (x.device().is_meta()) return codes;
  const auto* in = x.data<float>(x.layout());
  auto* out = codes.mutable_data<std::uint8_t>(x.layout());
  detail::encode_bytes(in, x.numel(), grid, out);
  return codes;
}

Tensor decode_floatx(const Tensor& codes, int ebits, int mbits) {
  constexpr const char* where = "decode_floatx";
  const Minifloat grid = grid_of(ebits, mbits, where);
  FQ_CHECK(codes.dtype() == DType::u8, where, "the codes are {}: give u8, one code a byte",
           name(codes.dtype()));
  return detail::decoded(codes, detail::minifloat_table(grid), DType::f32);
}

}  // namespace host
}  // namespace

Tensor cast_floatx(const Tensor& x, int ebits, int mbits) {
  return detail::through_host(host::cast_floatx, x, ebits, mbits);
}

Tensor decode_floatx(const Tensor& codes, int ebits, int mbits) {
  return detail::through_host(host::decode_floatx, codes, ebits, mbits);
}

}  // namespace fq::torchao
