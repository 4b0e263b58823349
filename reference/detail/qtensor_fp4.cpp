#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/quantized.h"
#include "fakequant/reference/detail/qtensor_parts.h"

namespace fq::modelopt {
namespace {

constexpr const char* kNvfp4 = "nvfp4_qtensor";

// Returns the code of e2m1(|t|), with the sign bit only for t < 0: -0 and NaN have none.
std::uint8_t nvfp4_code(float t, const Minifloat& e2m1) {
  const std::uint8_t magnitude = e2m1.encode(scalar::e2m1_magnitude(t));
  return static_cast<std::uint8_t>(magnitude | (t < 0 ? 8 : 0));
}

// Second-level scale. 2688 = 6 * 448, the largest E2M1 value times the largest E4M3 scale.
float outer_scale(const Tensor& x, const Amax& scale2) {
  if (scale2.defined()) return scale2.values()[0];
  return static_cast<float>(packed::block_amax(x, x.shape(), {}).item()) / 2688.0f;
}

// Returns the first-level scales e4m3(clamp(amax / (6 * s2), 2^-9, 448)). 2^-9 is the smallest E4M3 number.
// `steps` gets the divisors of the elements, scale * s2.
Tensor inner_scales(const Tensor& amax, float scale2, std::vector<float>& steps) {
  Tensor scale = Tensor::empty(amax.shape(), DType::f8_e4m3);
  const auto* a = amax.data<float>();
  auto* bytes = static_cast<std::uint8_t*>(scale.mutable_raw());
  for (std::int64_t j = 0; j < amax.numel(); ++j) {
    const float ratio = a[j] / (6.0f * scale2);
    const float rounded =
        scalar::round_e4m3(scalar::clamp_keeping_(ratio == 0 ? 1.0f : ratio, 0x1p-9f, 448.0f));
    bytes[j] = scalar::encode_e4m3(rounded);
    steps.push_back(rounded * scale2);
  }
  return scale;
}

}  // namespace

QTensor nvfp4_qtensor(const Tensor& x, const Amax& scale2, std::int64_t block_size) {
  if (fq::detail::needs_host(x)) return fq::detail::on_host(nvfp4_qtensor, x, scale2, block_size);
  packed::check_input(x, true, kNvfp4);
  packed::check_block_size(block_size, true, kNvfp4);
  FQ_CHECK(x.rank() > 0, kNvfp4, "the input has no axes: blocks lie along the last one");
  FQ_CHECK(!scale2.defined() || scale2.values().size() == 1, kNvfp4, "scale2 has {} elements: use one",
           scale2.values().size());
  // The codes keep the right padding of the last axis, as in the reference.
  Shape padded = x.shape();
  padded.back() = packed::padded_size(padded.back(), block_size);
  QTensor out{PackedFormat::nvfp4, x.shape(), x.dtype(), Tensor::zeros(padded, DType::f4_e2m1, x.device()),
              Tensor::zeros(packed::last_axis_scales(padded, block_size), DType::f8_e4m3, x.device())};
  out.scale2 = Tensor::empty({}, DType::f32, x.device());
  out.block = packed::last_axis_block(padded, block_size);
  if (x.device().is_meta()) return out;
  const Tensor in = packed::resized(x.to(Layout::row_major), padded);
  const float outer = outer_scale(in, scale2);
  out.scale2 = Tensor::scalar(outer);
  std::vector<float> steps;
  out.scale = inner_scales(packed::block_amax(in, out.block, out.scale.shape()), outer, steps);
  Tensor codes = Tensor::empty(padded, DType::u8);
  auto* bytes = codes.mutable_data<std::uint8_t>();
  const Minifloat e2m1 = Minifloat::of({2, 1});
  packed::visit_chunks(in, out.block, [&, e2m1](const float* v, auto begin, auto count, auto j, auto) {
    const float step = steps[static_cast<std::size_t>(j)];
    // A local copy that the output cannot alias, so that the loop vectorises.
    const Minifloat grid = e2m1;
    std::uint8_t* __restrict to = bytes + begin;
    for (std::int64_t k = 0; k < count; ++k) to[k] = nvfp4_code(v[k] / step, grid);
  });
  out.codes = pack_codes(codes, DType::f4_e2m1);
  return out;
}

namespace packed {

Tensor dequantize_nvfp4(const QTensor& q, DType dtype) {
  const auto table = fq::detail::code_table([e2m1 = Minifloat::of({2, 1})](std::uint8_t code) {
    return e2m1.decode(code) + 0.0f;  // -0 becomes +0
  });
  const Tensor values = fq::detail::decoded(unpack_codes(q.codes), table, DType::f32);
  const Tensor scales =
      fq::detail::decoded(q.scale, fq::detail::minifloat_table(Minifloat::of({4, 3})), DType::f32);
  const auto* s = scales.data<float>();
  const auto outer = static_cast<float>(q.scale2.item());
  Tensor y = Tensor::empty(values.shape(), dtype);
  map_blocks(values, q.block, y, [s, outer](const float* in, float* out, auto count, auto j, auto) {
    const float step = s[j] * outer;
    for (std::int64_t k = 0; k < count; ++k) out[k] = scalar::dequantize_code(in[k], step);
  });
  return resized(y, q.shape);
}

}  // namespace packed
}  // namespace fq::modelopt
