#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/detail/block_scales.h"
#include "fakequant/reference/detail/qtensor_parts.h"

namespace fq::modelopt {
namespace {

constexpr const char* kMxfp4 = "mxfp4_qtensor";
constexpr const char* kMxfp8 = "mxfp8_qtensor";
// E8M0 has one special code: all ones is NaN.
constexpr std::uint8_t kNaN = 0xff;

// Index of the E2M1 value nearest to |t|, ties towards 0, with a sign unless t > 0: the reference codes zero
// as 8, -0.
std::uint8_t mxfp4_code(float t) {
  const float magnitude = std::fabs(t);
  int index = 0;
  for (const float bound : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) index += magnitude > bound ? 1 : 0;
  return static_cast<std::uint8_t>(index + (t > 0 ? 0 : 8));
}

// e = ceil(max(log2(amax / 6), -127)). log2 is rounded to f32, so an amax just above a power of two may not
// round up (golden/README).
std::uint8_t mxfp4_scale(float amax) {
  if (!std::isfinite(amax)) return kNaN;
  return encode_e8m0(static_cast<int>(std::max(std::ceil(log2_rounded(amax / 6.0f)), -127.0f)));
}

// As above for E4M3. A zero or NaN block has exponent -127.
std::uint8_t mxfp8_scale(float amax) {
  const float ratio = amax / 448.0f;
  if (!(ratio > 0)) return encode_e8m0(-127);
  return encode_e8m0(static_cast<int>(scalar::clamp_(std::ceil(log2_rounded(ratio)), -127.0f, 127.0f)));
}

// Returns the E8M0 scales of blocks. `factors` gets their reciprocals, which are powers of two too, so that a
// multiplication has the bits of the division.
template <class F>
Tensor power_scales(const Tensor& x, const Shape& block, const Shape& shape, std::vector<float>& factors,
                    F&& code) {
  Tensor scale = Tensor::zeros(shape, DType::f8_e8m0, x.device());
  if (x.device().is_meta()) return scale;
  const Tensor amax = packed::block_amax(x, block, shape);
  const auto* a = amax.data<float>();
  auto* bytes = static_cast<std::uint8_t*>(scale.mutable_raw());
  for (std::int64_t j = 0; j < amax.numel(); ++j) {
    bytes[j] = code(a[j]);
    factors.push_back(bytes[j] == kNaN ? decode_e8m0(kNaN) : fq::detail::power_of_two(127 - bytes[j]));
  }
  return scale;
}

}  // namespace

QTensor mxfp4_qtensor(const Tensor& x, std::int64_t block_size) {
  if (fq::detail::needs_host(x)) return fq::detail::on_host(mxfp4_qtensor, x, block_size);
  packed::check_input(x, true, kMxfp4);
  packed::check_block_size(block_size, false, kMxfp4);
  FQ_CHECK(x.rank() > 0 && x.shape().back() % 2 == 0, kMxfp4,
           "the input is {}: its last axis must be even, two codes are packed in a byte",
           to_string(x.shape()));
  FQ_CHECK(x.numel() % block_size == 0, kMxfp4,
           "blocks of {} do not divide the {} elements: choose a divisor", block_size, x.numel());
  const Tensor in = x.to(Layout::row_major).reshape({x.numel()});
  std::vector<float> factors;
  QTensor out{PackedFormat::mxfp4, x.shape(), x.dtype(), Tensor::zeros(x.shape(), DType::f4_e2m1, x.device()),
              power_scales(in, {block_size}, {x.numel() / block_size, 1}, factors, mxfp4_scale)};
  out.block = {block_size};
  if (x.device().is_meta()) return out;
  Tensor codes = Tensor::empty(x.shape(), DType::u8);
  const auto* factor = factors.data();
  auto* bytes = codes.mutable_data<std::uint8_t>();
  packed::visit_chunks(in, out.block, [&](const float* v, auto begin, auto count, auto j, auto step) {
    std::uint8_t* __restrict to = bytes + begin;
    for (std::int64_t k = 0; k < count; ++k) to[k] = mxfp4_code(v[k] * factor[j + k * step]);
  });
  out.codes = pack_codes(codes, DType::f4_e2m1);
  return out;
}

QTensor mxfp8_qtensor(const Tensor& x) {
  if (fq::detail::needs_host(x)) return fq::detail::on_host(mxfp8_qtensor, x);
  packed::check_input(x, false, kMxfp8);
  FQ_CHECK(x.rank() > 0, kMxfp8, "the input has no axes: blocks lie along the last one");
  const Tensor in = x.to(Layout::row_major);
  const Shape block = packed::last_axis_block(x.shape(), 32);
  std::vector<float> factors;
  QTensor out{PackedFormat::mxfp8, x.shape(), x.dtype(), Tensor::empty(x.shape(), DType::f8_e4m3, x.device()),
              power_scales(in, block, packed::last_axis_scales(x.shape(), 32), factors, mxfp8_scale)};
  out.block = block;
  if (x.device().is_meta()) return out;
  const auto* factor = factors.data();
  auto* bytes = static_cast<std::uint8_t*>(out.codes.mutable_raw());
  const Minifloat e4m3 = Minifloat::of({4, 3});
  packed::visit_chunks(in, block, [=](const float* v, auto begin, auto count, auto j, auto step) {
    // A local copy that the output cannot alias, so that the loop vectorises.
    const Minifloat grid = e4m3;
    std::uint8_t* __restrict to = bytes + begin;
    for (std::int64_t k = 0; k < count; ++k) to[k] = grid.encode(grid.round(v[k] * factor[j + k * step]));
  });
  return out;
}

namespace packed {

Tensor dequantize_mx(const QTensor& q, DType dtype) {
  // MXFP4 has blocks of the flattened tensor, MXFP8 along the last axis.
  const bool flat = q.format == PackedFormat::mxfp4;
  const auto table = fq::detail::minifloat_table(Minifloat::of(flat ? FloatFormat{2, 1} : FloatFormat{4, 3}));
  const Tensor codes = flat ? unpack_codes(q.codes) : q.codes;
  const Tensor values = fq::detail::decoded(codes, table, DType::f32);
  const Tensor scales = fq::detail::decoded(q.scale, fq::detail::code_table(decode_e8m0), DType::f32);
  const auto* s = scales.data<float>();
  Tensor y = Tensor::empty(flat ? Shape{q.codes.numel()} : q.shape, dtype);
  map_blocks(values.reshape(y.shape()), q.block, y,
             [s](const float* in, float* out, auto count, auto j, auto step) {
               for (std::int64_t k = 0; k < count; ++k)
                 out[k] = scalar::dequantize_code(in[k], s[j + k * step]);
             });
  return y.reshape(q.shape);
}

}  // namespace packed
}  // namespace fq::modelopt
