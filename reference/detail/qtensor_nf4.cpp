#include <cmath>
#include <numeric>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/qtensor_parts.h"

namespace fq::modelopt {
namespace {

using fq::detail::rounded;
using fq::detail::Step;
constexpr const char* kNf4 = "nf4_qtensor";

/// QLoRA's NormalFloat quantiles to four digits, as bf16.
const std::array<float, 16>& nf4_values() {
  static const auto values = [] {
    std::array<float, 16> out{-1.0f,   -0.6962f, -0.5251f, -0.3949f, -0.2844f, -0.1848f, -0.0911f, 0.0f,
                              0.0796f, 0.1609f,  0.2461f,  0.3379f,  0.4407f,  0.5626f,  0.7230f,  1.0f};
    for (auto& v : out) v = rounded<bfloat16>(v);
    return out;
  }();
  return values;
}

// Index of the nearest entry, the first of equals. For NaN every comparison is false: index 0.
template <class T>
std::uint8_t nearest(float v, const std::array<float, 16>& table) {
  std::size_t best = 0;
  float distance = std::fabs(rounded<T>(v - table[0]));
  for (std::size_t i = 1; i < table.size(); ++i) {
    const float next = std::fabs(rounded<T>(v - table[i]));
    if (next < distance) distance = next, best = i;
  }
  return static_cast<std::uint8_t>(best);
}

template <class T>
void encode(const Tensor& x, std::int64_t block, const float* scale, std::uint8_t* bytes) {
  const auto& table = nf4_values();
  packed::visit_chunks(x, {block}, [&](const float* v, auto begin, auto count, auto j, auto step) {
    for (std::int64_t k = 0; k < count; ++k)
      bytes[begin + k] = nearest<T>(rounded<T>(v[k] / scale[j + k * step]), table);
  });
}

// Quantizes the scales a second time (QLoRA's double quantization): scales less their mean, rounded to x's
// type T, in blocks of `length`, as int8 codes.
template <class T>
void quantize_scales(const float* scale, std::int64_t count, std::int64_t length, QTensor& out) {
  using V = Step<T>;
  const float zero =
      rounded<T>(static_cast<float>(std::accumulate(scale, scale + count, 0.0) / static_cast<double>(count)));
  std::vector<float> centred(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) centred[static_cast<std::size_t>(i)] = rounded<T>(scale[i] - zero);
  const Tensor values = Tensor::from(centred, {count / length, length});
  Tensor outer = packed::block_amax(values, {1, length}, {count / length});
  auto* d = outer.mutable_data<float>();
  for (std::int64_t j = 0; j < outer.numel(); ++j)
    d[j] = static_cast<float>(scalar::number_quotient(127.0f, V{d[j]}));
  auto* codes = out.scale_codes.mutable_data<std::int8_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto code = static_cast<float>(scalar::modelopt_code(V{centred[static_cast<std::size_t>(i)]},
                                                               V{d[i / length]}, V{-127.0f}, V{127.0f}));
    codes[i] = static_cast<std::int8_t>(scalar::is_nan_(code) ? 0.0f : code);
  }
  out.double_scale = outer;
  out.scale_zero = Tensor::scalar(zero);
}

}  // namespace

QTensor nf4_qtensor(const Tensor& x, std::int64_t block_size, std::int64_t scale_block_size) {
  if (fq::detail::needs_host(x)) return fq::detail::on_host(nf4_qtensor, x, block_size, scale_block_size);
  packed::check_input(x, true, kNf4);
  packed::check_block_size(block_size, false, kNf4);
  packed::check_block_size(scale_block_size, false, kNf4);
  const Tensor in = packed::flattened(x, block_size);
  // Two indices share a byte.
  FQ_CHECK(in.numel() % 2 == 0, kNf4,
           "{} elements padded to {} do not fill bytes of two codes: use an even block size", x.numel(),
           in.numel());
  const std::int64_t blocks = in.numel() / block_size, scales = packed::padded_size(blocks, scale_block_size);
  QTensor out{PackedFormat::nf4, x.shape(), x.dtype(), Tensor::empty(in.shape(), DType::u8, x.device()),
              packed::resized(packed::block_amax(in, {block_size}, {blocks}), {scales})};
  out.block = {block_size};
  out.scale_codes = Tensor::zeros({scales / scale_block_size, scale_block_size}, DType::i8, x.device());
  out.double_scale = Tensor::empty({scales / scale_block_size}, DType::f32, x.device());
  out.scale_zero = Tensor::empty({}, DType::f32, x.device());
  if (!x.device().is_meta())
    packed::visit_rounding(x.dtype(), [&]<class T>(T) {
      // encode uses the exact scales; dequantization later uses the quantized ones, as in the reference.
      const auto* scale = out.scale.data<float>();
      encode<T>(in, block_size, scale, out.codes.mutable_data<std::uint8_t>());
      quantize_scales<T>(scale, scales, scale_block_size, out);
    });
  out.codes = packed::packed_high_first(out.codes, {in.numel() / 2});
  for (Tensor* t : {&out.scale, &out.double_scale, &out.scale_zero}) *t = t->to(x.dtype());
  return out;
}

namespace packed {

namespace {

// Returns scale_codes / d, rounded to x's type T and then to the type D of the output, plus the mean. The sum
// is rounded if T is D: torch promotes different types to f32.
template <class T, class D>
std::vector<float> dequantized_scales(const QTensor& q) {
  const Tensor outer = q.double_scale.to(DType::f32);
  const auto* d = outer.data<float>();
  const auto zero = static_cast<float>(q.scale_zero.item());
  const auto* codes = q.scale_codes.data<std::int8_t>();
  std::vector<float> out(static_cast<std::size_t>(q.scale_codes.numel()));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto block = static_cast<std::int64_t>(i) / q.scale_codes.dim(1);
    const float sum = rounded<D>(rounded<T>(static_cast<float>(codes[i]) / d[block])) + zero;
    out[i] = std::is_same_v<T, D> ? rounded<T>(sum) : sum;
  }
  return out;
}

}  // namespace

Tensor dequantize_nf4(const QTensor& q, DType dtype) {
  const auto scales = visit_rounding(q.dtype, [&]<class T>(T) {
    return visit_rounding(dtype, [&]<class D>(D) { return dequantized_scales<T, D>(q); });
  });
  Tensor y = Tensor::empty({numel(q.shape)}, dtype);
  // Reads only y.numel() indices, which crops the padding.
  const Tensor indices = unpacked_high_first(q.codes, y.numel());
  const auto& table = nf4_values();
  map_blocks(indices, q.block, y, [&](const float* in, float* out, auto count, auto j, auto step) {
    for (std::int64_t k = 0; k < count; ++k)
      out[k] = scalar::dequantize_code(table[static_cast<std::size_t>(in[k])],
                                       scales[static_cast<std::size_t>(j + k * step)]);
  });
  return y.reshape(q.shape);
}

}  // namespace packed
}  // namespace fq::modelopt
