#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/float_blocks.h"
#include "fakequant/reference/detail/through_host.h"
#include "fakequant/reference/torch_ref.h"

namespace fq::torch_ref {
namespace {

constexpr const char* kCastFloat8 = "cast_float8";
constexpr const char* kDecode = "decode_float8";

// Returns f(x[i]) as codes, one byte each.
template <class F>
Tensor encode(const Tensor& x, DType dtype, F f) {
  Tensor codes = Tensor::empty(x.shape(), dtype, x.device());
  if (x.device().is_meta()) return codes;
  auto* to = static_cast<std::uint8_t*>(codes.mutable_raw());
  detail::visit_chunks(x.to(Layout::row_major), x.shape(),
                       [&](const float* in, auto begin, auto count, auto, auto) {
                         const F of = f;  // a copy that does not alias the output, so that loops vectorise
                         std::uint8_t* __restrict out = to + begin;
                         for (std::int64_t k = 0; k < count; ++k) out[k] = of(in[k]);
                       });
  return codes.to(x.layout());
}

// Encodes as E4M3 or E5M2. Where |v| > `limit`, the code is `beyond` (NaN or infinity) with the sign of v.
Tensor encode_minifloat(const Tensor& x, DType dtype, float limit, std::uint8_t beyond) {
  const Minifloat grid = detail::dtype_minifloat(dtype);
  return encode(x, dtype, [=](float v) {
    const std::uint8_t code = grid.encode(grid.round(v));
    return static_cast<std::uint8_t>(std::fabs(v) > limit ? (code & 0x80u) | beyond : code);
  });
}

// Rounds |v| to a power of two: a mantissa of 1.5 or more goes up. Below the smallest normal float the codes
// are 0 (2^-127) and, for more than 2^-127, 1 (2^-126).
std::uint8_t encode_e8m0(float v) {
  const std::int32_t word = std::bit_cast<std::int32_t>(v) & 0x7fffffff;
  const std::int32_t half = word < 0x00800000 ? 0x003fffff : 0x00400000;
  // The minimum avoids the integer overflow of NaN words. The last line gives NaN and infinity their code.
  const std::int32_t code = (std::min(word, 0x7f7fffff) + half) >> 23;
  return static_cast<std::uint8_t>(word < 0x7f800000 ? code : 0xff);
}

void check_codes(DType dtype, const char* function) {
  FQ_CHECK(dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2 || dtype == DType::f8_e8m0, function,
           "codes of {}: use f8_e4m3, f8_e5m2 or f8_e8m0", name(dtype));
}

}  // namespace

Tensor cast_float8(const Tensor& x, DType dtype, bool saturate) {
  if (detail::needs_host(x)) return detail::on_host(cast_float8, x, dtype, saturate);
  FQ_CHECK(is_floating(x.dtype()) && x.dtype() != DType::f64, kCastFloat8,
           "the input is {}: use f32, f16 or bf16", name(x.dtype()));
  check_codes(dtype, kCastFloat8);
  if (dtype == DType::f8_e8m0) return encode(x, dtype, encode_e8m0);
  const float never = std::numeric_limits<float>::infinity();
  // 464 is half-way between 448 and the next step, and ties to 448. For E5M2 the half-way point 61440 ties to
  // infinity, so the limit lies just below it.
  if (dtype == DType::f8_e4m3) return encode_minifloat(x, dtype, saturate ? never : 464.0f, 0x7f);
  return encode_minifloat(x, dtype, saturate ? never : std::nextafter(61440.0f, 0.0f), 0x7c);
}

Tensor decode_float8(const Tensor& codes, DType dtype) {
  if (detail::needs_host(codes)) return detail::on_host(decode_float8, codes, dtype);
  check_codes(codes.dtype(), kDecode);
  FQ_CHECK(is_floating(dtype), kDecode, "the output is {}: use a float type", name(dtype));
  Tensor out = Tensor::empty(codes.shape(), dtype, codes.device());
  if (!codes.device().is_meta())
    detail::map_blocks(
        codes.to(Layout::row_major), codes.shape(), out,
        [](const float* in, float* to, auto count, auto, auto) { std::copy_n(in, count, to); });
  return out.to(codes.layout());
}

Tensor cast_float(const Tensor& x, DType dtype) {
  FQ_CHECK(is_floating(x.dtype()) && is_floating(dtype), "cast_float", "{} to {}: both must be float types",
           name(x.dtype()), name(dtype));
  return x.to(dtype);
}

}  // namespace fq::torch_ref
