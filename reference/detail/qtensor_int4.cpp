#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/qtensor_parts.h"

namespace fq::modelopt {
namespace {

constexpr const char* kInt4 = "int4_qtensor";

// Returns the shape of the packed codes, [.., padded / 2 / rows]. The reference views the padded codes with
// x's leading axes, which must divide them.
Shape packed_shape(const Tensor& x, std::int64_t padded) {
  const std::int64_t rows = x.numel() / x.shape().back();
  FQ_CHECK(
      padded % 2 == 0 && padded / 2 % rows == 0, kInt4,
      "{} elements padded to {} do not give bytes of two codes for each row of {}: choose a block size that "
      "divides the number of elements",
      x.numel(), padded, to_string(x.shape()));
  Shape shape = x.shape();
  shape.back() = padded / 2 / rows;
  return shape;
}

}  // namespace

QTensor int4_qtensor(const Tensor& x, std::int64_t block_size) {
  if (fq::detail::needs_host(x)) return fq::detail::on_host(int4_qtensor, x, block_size);
  packed::check_input(x, true, kInt4);
  packed::check_block_size(block_size, false, kInt4);
  FQ_CHECK(x.rank() > 0 && x.shape().back() % 2 == 0, kInt4,
           "the input is {}: its last axis must be even, two codes are packed in a byte",
           to_string(x.shape()));
  const Tensor in = packed::flattened(x, block_size);
  const Shape shape = packed_shape(x, in.numel());
  QTensor out{PackedFormat::int4, x.shape(), x.dtype(), Tensor::empty(in.shape(), DType::u8, x.device()),
              packed::block_amax(in, {block_size}, {in.numel() / block_size, 1})};
  out.block = {block_size};
  if (!x.device().is_meta()) {
    auto* s = out.scale.mutable_data<float>();
    auto* bytes = out.codes.mutable_data<std::uint8_t>();
    packed::visit_rounding(x.dtype(), [&]<class T>(T) {
      using V = fq::detail::Step<T>;
      for (std::int64_t j = 0; j < out.scale.numel(); ++j)
        // 7 * (1 / amax), two roundings: PyTorch's division of a number by a tensor. A zero block has an
        // infinite scale.
        s[j] = static_cast<float>(scalar::number_quotient(7.0f, V{s[j]}));
      packed::visit_chunks(in, {block_size}, [&](const float* v, auto begin, auto count, auto j, auto step) {
        for (std::int64_t k = 0; k < count; ++k) {
          const V scale{s[j + k * step]};
          const auto code = static_cast<float>(scalar::modelopt_code(V{v[k]}, scale, V{-8.0f}, V{7.0f}));
          // Stored as code + 8. 0 * Inf of a zero block is NaN, which is stored as 0: its value (0 - 8) / Inf
          // is -0.
          const auto offset = static_cast<std::int32_t>(scalar::is_nan_(code) ? 0.0f : code + 8.0f);
          bytes[begin + k] = static_cast<std::uint8_t>(offset);
        }
      });
    });
  }
  out.codes = packed::packed_high_first(out.codes, shape);
  out.scale = out.scale.to(x.dtype());
  return out;
}

namespace packed {

Tensor dequantize_int4(const QTensor& q, DType dtype) {
  Tensor y = Tensor::empty({numel(q.shape)}, dtype);
  const Tensor scales = q.scale.to(DType::f32);
  const auto* s = scales.data<float>();
  const Tensor codes = unpacked_high_first(q.codes, y.numel());
  visit_rounding(q.dtype, [&]<class T>(T) {
    map_blocks(codes, q.block, y, [s](const float* in, float* out, auto count, auto j, auto step) {
      // The scale is a divisor here: codes are x * scale.
      for (std::int64_t k = 0; k < count; ++k)
        out[k] = fq::detail::rounded<T>((in[k] - 8.0f) / s[j + k * step]);
    });
  });
  return y.reshape(q.shape);
}

}  // namespace packed
}  // namespace fq::modelopt
