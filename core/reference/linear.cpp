#include "fakequant/core/reference/linear.h"

#include "fakequant/core/check.h"
#include "fakequant/core/cpu/grid.h"
#include "fakequant/core/reference/broadcast.h"

namespace fq::detail {
namespace {

struct Bounds {
  float lower, upper;
};

Bounds bounds(DType codes, const char* function) {
  switch (codes) {
    case DType::i8:
      return {-128, 127};
    case DType::u8:
      return {0, 255};
    case DType::i4:
      return {-8, 7};
    case DType::f8_e4m3:
      return {-448, 448};
    default:
      throw ArgumentError(fmt::format("[{}] codes of {}: use i8, u8, i4 or f8_e4m3", function, name(codes)));
  }
}

void store(void* codes, DType dtype, std::int64_t i, float value) {
  if (dtype != DType::i4) return cpu::store_code(codes, dtype, i, value);
  auto& byte = static_cast<std::uint8_t*>(codes)[i / 2];
  const unsigned shift = i % 2 == 0 ? 0 : 4;
  byte = static_cast<std::uint8_t>((byte & ~(0xfu << shift)) |
                                   ((static_cast<unsigned>(static_cast<int>(value)) & 0xfu) << shift));
}

float load(const void* codes, DType dtype, std::int64_t i) {
  if (dtype != DType::i4) return cpu::load_code(codes, dtype, i);
  const int nibble = (static_cast<const std::uint8_t*>(codes)[i / 2] >> (i % 2 == 0 ? 0 : 4)) & 0xf;
  return static_cast<float>(nibble < 8 ? nibble : nibble - 16);
}

}  // namespace

Granularity linear_granularity(const Shape& x, const Shape& scale, int axis, const char* function) {
  if (numel(scale) == 1 && scale.size() < 2) return Granularity::per_tensor();
  if (scale.size() == 1) {
    const int kept = normalize_axis(axis, static_cast<int>(x.size()), function);
    const std::int64_t size = x[static_cast<std::size_t>(kept)];
    FQ_CHECK(scale[0] == size, function,
             "the scale has {} elements, axis {} of the input {} has {}: give one for each", scale[0], kept,
             to_string(x), size);
    return Granularity::per_axis(kept);
  }
  FQ_CHECK(scale.size() == 2 && x.size() == 2 && scale[1] == x[1] && scale[0] > 0 && x[0] % scale[0] == 0,
           function, "a scale of {} does not divide the input {} into blocks along axis 0", to_string(scale),
           to_string(x));
  return Granularity::per_group(std::max<std::int64_t>(x[0] / scale[0], 1), 0);
}

Tensor linear_quantize(const Tensor& x, const Tensor& scale, const Granularity& granularity, DType codes,
                       const char* function) {
  FQ_CHECK(is_floating(x.dtype()), function, "the input is {}: give a float type", name(x.dtype()));
  const auto [lower, upper] = bounds(codes, function);
  Tensor out = Tensor::zeros(x.shape(), codes, x.device());
  if (x.device().is_meta()) return out;
  const Tensor values = x.to(Layout::row_major).to(DType::f32), scales = scale.to(DType::f32);
  const auto *v = values.data<float>(), *s = scales.data<float>();
  void* bytes = out.mutable_raw();
  for_blocks(x.shape(), granularity.block_shape(x.shape()), [&](auto i, auto j) {
    store(bytes, codes, i,
          codes == DType::f8_e4m3 ? scalar::quantize_e4m3(v[i], s[j])
                                  : scalar::quantize_code(v[i], s[j], lower, upper));
  });
  return out;
}

Tensor linear_dequantize(const Tensor& codes, const Tensor& scale, const Granularity& granularity,
                         DType dtype, const char* function) {
  (void)bounds(codes.dtype(), function);
  FQ_CHECK(is_floating(dtype), function, "the output is {}: give a float type", name(dtype));
  Tensor out = Tensor::empty(codes.shape(), DType::f32, codes.device());
  if (codes.device().is_meta()) return out.to(dtype);
  const Tensor scales = scale.to(DType::f32);
  const auto* s = scales.data<float>();
  auto* y = out.mutable_data<float>();
  for_blocks(codes.shape(), granularity.block_shape(codes.shape()), [&](auto i, auto j) {
    y[i] = scalar::dequantize_code(load(codes.raw(), codes.dtype(), i), s[j]);
  });
  return out.to(dtype);
}

}  // namespace fq::detail
