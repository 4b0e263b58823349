#include "fakequant/reference/detail/qtensor_parts.h"

#include <algorithm>
#include <cstring>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/detail/block_ranges.h"

namespace fq::modelopt {

QTensor moved(QTensor q, Device device) {
  for (Tensor* part : {&q.codes, &q.scale, &q.scale2, &q.scale_codes, &q.double_scale, &q.scale_zero})
    *part = part->to(device);
  return q;
}

namespace {
namespace host {

// Each format rounds in its own order, so dequantization is not one formula.
Tensor dequantize(const QTensor& q, DType dtype) {
  switch (q.format) {
    case PackedFormat::int8:
    case PackedFormat::fp8:
      return packed::dequantize_bytes(q, dtype);
    case PackedFormat::int4:
      return packed::dequantize_int4(q, dtype);
    case PackedFormat::nvfp4:
      return packed::dequantize_nvfp4(q, dtype);
    case PackedFormat::nf4:
      return packed::dequantize_nf4(q, dtype);
    default:
      return packed::dequantize_mx(q, dtype);
  }
}

}  // namespace host
}  // namespace

Tensor QTensor::dequantize(std::optional<DType> target) const {
  const DType to = target.value_or(dtype);
  FQ_CHECK(is_floating(to) && to != DType::f64, "qtensor.dequantize",
           "the output type is {}: use f32, f16 or bf16", name(to));
  if (codes.device().is_meta()) return Tensor::empty(shape, to, codes.device());
  return fq::detail::through_host(host::dequantize, *this, to);
}

namespace packed {

void check_input(const Tensor& x, bool needs_elements, const char* function) {
  FQ_CHECK(x.defined() && is_floating(x.dtype()) && x.dtype() != DType::f64, function,
           "the input is {}: use f32, f16 or bf16", x.describe());
  FQ_CHECK(x.numel() > 0 || !needs_elements, function, "the input {} has no elements: it has no scale",
           to_string(x.shape()));
}

void check_block_size(std::int64_t size, bool even, const char* function) {
  FQ_CHECK(size >= 1 && size <= 1 << 24 && (!even || size % 2 == 0), function,
           "the block size is {}: use an {}number from 1 to 2^24", size, even ? "even " : "");
}

Shape last_axis_block(const Shape& shape, std::int64_t length) {
  Shape block(shape.size(), 1);
  block.back() = length;
  return block;
}

Shape last_axis_scales(Shape shape, std::int64_t length) {
  shape.back() = padded_size(shape.back(), length) / length;
  return shape;
}

Tensor resized(const Tensor& x, const Shape& shape) {
  if (shape == x.shape()) return x;
  Tensor out = Tensor::zeros(shape, x.dtype(), x.device());
  if (x.device().is_meta() || x.numel() == 0 || out.numel() == 0) return out;
  // Copies the common part row by row along the last axis. Rows go odometer-like through the other axes.
  const std::size_t last = shape.size() - 1;
  const std::int64_t width = bit_width(x.dtype()) / 8, row = std::min(x.shape()[last], shape[last]) * width;
  const auto* from = static_cast<const std::byte*>(x.raw());
  auto* to = static_cast<std::byte*>(out.mutable_raw());
  Shape common = shape, index(shape.size());
  for (std::size_t a = 0; a < last; ++a) common[a] = std::min(shape[a], x.shape()[a]);
  common[last] = 1;
  for (std::int64_t n = numel(common); n-- > 0;) {
    std::int64_t i = 0, j = 0;
    for (std::size_t a = 0; a <= last; ++a) i = i * x.shape()[a] + index[a], j = j * shape[a] + index[a];
    std::memcpy(to + j * width, from + i * width, static_cast<std::size_t>(row));
    for (std::size_t a = last; a-- > 0;) {
      if (++index[a] < common[a]) break;
      index[a] = 0;
    }
  }
  return out;
}

Tensor flattened(const Tensor& x, std::int64_t length) {
  return resized(x.to(Layout::row_major).reshape({x.numel()}), {padded_size(x.numel(), length)});
}

Tensor block_amax(const Tensor& x, const Shape& block, const Shape& shape) {
  Tensor out = Tensor::zeros(shape, DType::f32, x.device());
  if (x.device().is_meta()) return out;
  auto* amax = out.mutable_data<float>();
  visit_chunks(x, block, [amax](const float* v, auto, auto count, auto j, auto step) {
    if (step == 0) {
      // largest_magnitude keeps NaN, which std::max would drop.
      const float pair[] = {amax[j], fq::detail::largest_magnitude(v, count)};
      amax[j] = fq::detail::largest_magnitude(pair, 2);
    } else {
      for (std::int64_t k = 0; k < count; ++k) {
        const float pair[] = {amax[j + k], v[k]};
        amax[j + k] = fq::detail::largest_magnitude(pair, 2);
      }
    }
  });
  return out;
}

// ModelOpt packs the earlier code into the high nibble, unlike DType::u4.
Tensor packed_high_first(const Tensor& codes, const Shape& shape) {
  Tensor out = Tensor::empty(shape, DType::u8, codes.device());
  if (codes.device().is_meta()) return out;
  const auto* in = codes.data<std::uint8_t>();
  auto* to = out.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    to[i] = static_cast<std::uint8_t>((in[2 * i] << 4) | in[2 * i + 1]);
  return out;
}

Tensor unpacked_high_first(const Tensor& bytes, std::int64_t count) {
  Tensor out = Tensor::empty({count}, DType::u8);
  const auto* in = bytes.data<std::uint8_t>();
  auto* to = out.mutable_data<std::uint8_t>();
  // Reads `count` codes only, which crops the padding.
  for (std::int64_t i = 0; i < count; ++i) to[i] = (in[i / 2] >> (i % 2 == 0 ? 4 : 0)) & 0xfu;
  return out;
}

}  // namespace packed
}  // namespace fq::modelopt
