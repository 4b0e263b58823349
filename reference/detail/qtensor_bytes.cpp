#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/qtensor_parts.h"

namespace fq::modelopt {
namespace {

using fq::detail::rounded;
using fq::detail::Step;
using packed::map_blocks;

// Elements along each axis that share a scale, and the shape of the scales.
struct Blocks {
  Shape block, scales;
};

// Returns one scale for each index of the kept axes. `block` and `scales` start as one scale for all of x.
Blocks axis_blocks(const Shape& x, const Axes& axis, const char* function) {
  Blocks out{x, Shape(x.size(), 1)};
  for (const int kept : axis.values()) {
    const auto a = static_cast<std::size_t>(normalize_axis(kept, static_cast<int>(x.size()), function));
    FQ_CHECK(out.block[a] == x[a] && out.scales[a] == 1, function, "axis {} is named twice", kept);
    out.block[a] = 1;
    out.scales[a] = x[a];
  }
  // The reference's two special cases: with no axis left to reduce it reduces all, and a result of one
  // element has rank 0.
  if (axis.values().size() == x.size()) out = {x, {}};
  if (numel(out.scales) == 1) out.scales = {};
  return out;
}

// Blocks along the named axes; along the other axes every element has its own scale.
Blocks length_blocks(const Shape& x, const BlockLengths& lengths, const char* function) {
  Blocks out{Shape(x.size(), 1), x};
  std::vector<bool> seen(x.size());
  for (const auto& [axis, length] : lengths) {
    const auto a = static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(x.size()), function));
    packed::check_block_size(length, false, function);
    FQ_CHECK(!seen[a], function, "axis {} has two block lengths", a);
    seen[a] = true;
    out.block[a] = length;
    out.scales[a] = packed::padded_size(x[a], length) / length;
  }
  return out;
}

Blocks make_blocks(const Tensor& x, const Axes& axis, const BlockLengths& lengths, const char* function) {
  FQ_CHECK(axis.empty() || lengths.empty(), function, "axis and blocks are both given: choose one");
  packed::check_input(x, lengths.empty(), function);
  return lengths.empty() ? axis_blocks(x.shape(), axis, function)
                         : length_blocks(x.shape(), lengths, function);
}

// Returns fl(amax / bound), rounded to x's type.
Tensor amax_scales(const Tensor& x, const Blocks& b, float bound) {
  Tensor scale = packed::block_amax(x, b.block, b.scales);
  if (x.device().is_meta()) return scale.to(x.dtype());
  auto* s = scale.mutable_data<float>();
  for (std::int64_t j = 0; j < scale.numel(); ++j) s[j] /= bound;
  return scale.to(x.dtype());
}

// Writes codes[i] = code(fl(x / s)). Two loops, so that each vectorises.
template <class F>
void encode(const Tensor& x, const Shape& block, const Tensor& scale, Tensor& codes, F&& code) {
  if (x.device().is_meta()) return;
  const Tensor scales = scale.to(DType::f32);
  const auto* s = scales.data<float>();
  auto* bytes = static_cast<std::uint8_t*>(codes.mutable_raw());
  packed::visit_rounding(x.dtype(), [&]<class T>(T) {
    packed::visit_chunks(x, block, [&](const float* v, auto begin, auto count, auto j, auto step) {
      std::uint8_t* __restrict to = bytes + begin;
      if (step == 0) {
        const float divisor = s[j];
        for (std::int64_t k = 0; k < count; ++k) to[k] = code(rounded<T>(v[k] / divisor));
      } else {
        for (std::int64_t k = 0; k < count; ++k) to[k] = code(rounded<T>(v[k] / s[j + k]));
      }
    });
  });
}

// NaN, which 0 / 0 of a zero block gives, becomes 0. The byte has the bits of the int8 code.
std::uint8_t int8_code(float quotient) {
  const float code = scalar::clamp_keeping_(scalar::rint_(quotient), -128.0f, 127.0f);
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(scalar::is_nan_(code) ? 0.0f : code));
}

}  // namespace

QTensor int8_qtensor(const Tensor& x, const Axes& axis, const BlockLengths& lengths) {
  if (fq::detail::needs_host(x)) return fq::detail::on_host(int8_qtensor, x, axis, lengths);
  const Blocks b = make_blocks(x, axis, lengths, "int8_qtensor");
  const Tensor in = x.to(Layout::row_major);
  QTensor out{PackedFormat::int8, x.shape(), x.dtype(), Tensor::empty(x.shape(), DType::i8, x.device()),
              amax_scales(in, b, 127.0f)};
  out.block = b.block;
  encode(in, b.block, out.scale, out.codes, int8_code);
  // The codes keep the right padding of blocks, as in the reference (FP8 codes are cropped).
  Shape padded = x.shape();
  for (std::size_t a = 0; a < padded.size(); ++a)
    padded[a] = packed::padded_size(padded[a], std::max<std::int64_t>(b.block[a], 1));
  out.codes = packed::resized(out.codes, padded);
  return out;
}

QTensor fp8_qtensor(const Tensor& x, const Axes& axis, const BlockLengths& lengths) {
  if (fq::detail::needs_host(x)) return fq::detail::on_host(fp8_qtensor, x, axis, lengths);
  const Blocks b = make_blocks(x, axis, lengths, "fp8_qtensor");
  const Tensor in = x.to(Layout::row_major);
  QTensor out{PackedFormat::fp8, x.shape(), x.dtype(), Tensor::empty(x.shape(), DType::f8_e4m3, x.device()),
              amax_scales(in, b, 448.0f)};
  out.block = b.block;
  encode(in, b.block, out.scale, out.codes,
         [grid = Minifloat::of({4, 3})](float quotient) { return grid.encode(grid.round(quotient)); });
  return out;
}

namespace packed {

Tensor dequantize_bytes(const QTensor& q, DType dtype) {
  const Tensor codes = resized(q.codes, q.shape), scales = q.scale.to(dtype).to(DType::f32);
  const Tensor values =
      q.format == PackedFormat::fp8
          ? fq::detail::decoded(codes, fq::detail::minifloat_table(Minifloat::of({4, 3})), DType::f32)
          : codes;
  Tensor y = Tensor::empty(q.shape, dtype);
  const auto* s = scales.data<float>();
  map_blocks(values, q.block, y, [s](const float* in, float* out, auto count, auto j, auto step) {
    for (std::int64_t k = 0; k < count; ++k) out[k] = scalar::dequantize_code(in[k], s[j + k * step]);
  });
  return y;
}

}  // namespace packed
}  // namespace fq::modelopt
