#include "fakequant/core/reference/qtensor_parts.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "fakequant/core/check.h"
#include "fakequant/core/minifloat.h"

namespace fq::modelopt {

Tensor QTensor::dequantize(std::optional<DType> target) const {
  const DType to = target.value_or(dtype);
  FQ_CHECK(is_floating(to) && to != DType::f64, "qtensor.dequantize",
           "the output is to be {}: ask for f32, f16 or bf16", name(to));
  if (codes.device().is_meta()) return Tensor::empty(shape, to, codes.device());
  switch (format) {
    case PackedFormat::int8:
    case PackedFormat::fp8:
      return packed::dequantize_bytes(*this, to);
    case PackedFormat::int4:
      return packed::dequantize_int4(*this, to);
    case PackedFormat::nvfp4:
      return packed::dequantize_nvfp4(*this, to);
    case PackedFormat::nf4:
      return packed::dequantize_nf4(*this, to);
    default:
      return packed::dequantize_mx(*this, to);
  }
}

namespace packed {

void check_input(const Tensor& x, bool needs_elements, const char* function) {
  FQ_CHECK(x.defined() && is_floating(x.dtype()) && x.dtype() != DType::f64, function,
           "the input is {}: give f32, f16 or bf16", x.describe());
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
  for_chunks(x, block, [amax](const float* v, auto, auto count, auto j, auto step) {
    const auto larger = [](float a, float b) {  // as integers, where NaN is the largest
      const auto bits = std::bit_cast<std::int32_t>(b) & 0x7fffffff;
      return std::bit_cast<float>(std::max(std::bit_cast<std::int32_t>(a), bits));
    };
    if (step != 0)
      for (std::int64_t k = 0; k < count; ++k) amax[j + k] = larger(amax[j + k], v[k]);
    else
      for (std::int64_t k = 0; k < count; ++k) amax[j] = larger(amax[j], v[k]);
  });
  return out;
}

float ceil_log2(float v) { return std::ceil(static_cast<float>(std::log2(static_cast<double>(v)))); }

Tensor looked_up(const Tensor& codes, const std::array<float, 256>& values) {
  Tensor out = Tensor::empty(codes.shape());
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw());
  auto* to = out.mutable_data<float>();
  const bool pairs = bit_width(codes.dtype()) == 4;
  for (std::int64_t i = 0; i < codes.numel(); ++i) to[i] = values[pairs ? nibble(bytes, i, false) : bytes[i]];
  return out;
}

namespace {

template <class F>
std::array<float, 256> table(F&& f) {
  std::array<float, 256> out{};
  for (std::size_t code = 0; code < out.size(); ++code) out[code] = f(static_cast<std::uint8_t>(code));
  return out;
}

}  // namespace

const std::array<float, 256>& e4m3_values() {
  static const auto values = table([](std::uint8_t code) { return scalar::decode_e4m3(code); });
  return values;
}

const std::array<float, 256>& e8m0_values() {
  static const auto values = table([](std::uint8_t code) { return decode_e8m0(code); });
  return values;
}

void pack_nibble(std::uint8_t* bytes, std::int64_t i, std::uint8_t code, bool swapped) {
  const int shift = (i % 2 != 0) == swapped ? 0 : 4;
  bytes[i / 2] = static_cast<std::uint8_t>(bytes[i / 2] | (code << shift));
}

std::uint8_t nibble(const std::uint8_t* bytes, std::int64_t i, bool swapped) {
  return (bytes[i / 2] >> ((i % 2 != 0) == swapped ? 0 : 4)) & 0xfu;
}

}  // namespace packed
}  // namespace fq::modelopt
