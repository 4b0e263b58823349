#include "fakequant/core/detail/packed_scales.h"

#include <cmath>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/numerics/detail/minifloat.h"

namespace fq {
namespace {

// E4M3 has an implicit bit and 3 of mantissa.
constexpr int kPowersOfTwo = 1, kE4m3Bits = 4;  // significant bits, as in Grid
const Minifloat e4m3_grid = Minifloat::of({4, 3});

template <class F>
Tensor mapped(const Tensor& x, F&& f) {
  Tensor out = Tensor::empty(x.shape());
  const auto* in = x.data<float>();
  auto* to = out.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) to[i] = f(in[i]);
  return out;
}

Tensor decoded(const Tensor& codes) {
  const bool e4m3 = codes.dtype() == DType::f8_e4m3;
  Tensor out = Tensor::empty(codes.shape());
  const auto* in = static_cast<const std::uint8_t*>(codes.raw());
  auto* to = out.mutable_data<float>();
  for (std::int64_t i = 0; i < codes.numel(); ++i)
    to[i] = e4m3 ? e4m3_grid.decode(in[i]) : decode_e8m0(in[i]);
  return out;
}

Tensor checked_scales(const PackedScales& packed, const std::string& name) {
  const DType dtype = packed.values.dtype();
  FQ_CHECK(packed.defined() && (dtype == DType::f32 || dtype == DType::f8_e4m3 || dtype == DType::f8_e8m0),
           "quantizer", "the scales of '{}' are {}: use f32, f8_e4m3 or f8_e8m0", name,
           packed.values.describe());
  const Tensor floats = dtype == DType::f32 ? packed.values : decoded(packed.values);
  return mapped(floats, [&](float value) {
    const float scale = value * packed.unit;
    FQ_CHECK(scale > 0 && std::isfinite(scale), "quantizer",
             "a scale of '{}' is {}: it must be finite and positive", name, scale);
    return scale;
  });
}

}  // namespace

std::int64_t PackedScales::nbytes() const noexcept {
  if (!defined()) return 0;
  return values.nbytes() + (values.dtype() == DType::f8_e4m3 ? std::int64_t{sizeof unit} : 0);
}

Tensor scale_codes(const Tensor& scales, const Grid& grid) {
  const bool e4m3 = grid.scale_bits == kE4m3Bits;
  FQ_CHECK(e4m3 || grid.scale_bits == kPowersOfTwo, "scale_codes",
           "the scales of '{}' are any floats: they have no codes", grid.name);
  const float unit = grid.unit;
  Tensor out = Tensor::empty(scales.shape(), e4m3 ? DType::f8_e4m3 : DType::f8_e8m0);
  const auto* in = scales.data<float>();
  auto* codes = static_cast<std::uint8_t*>(out.mutable_raw());
  for (std::int64_t i = 0; i < scales.numel(); ++i)
    // Exact: block_scaled rounded each scale to fl(code * unit), so that scale / unit rounds back to the
    // code, and ilogb of a power of two is its exponent.
    codes[i] = e4m3 ? e4m3_grid.encode(e4m3_grid.round(in[i] / unit)) : encode_e8m0(std::ilogb(in[i] / unit));
  return out;
}

PackedScales pack_scales(const Grid& grid) {
  // Scales of any float value are stored as f32, so that codes decode to equal values again.
  if (grid.scale_bits == 0) return {grid.scale};
  return {scale_codes(grid.scale, grid), grid.unit};
}

Grid unpack_scales(const PackedScales& packed, Format format, Granularity granularity, std::string name) {
  const DType dtype = packed.values.dtype();
  const Tensor scale = checked_scales(packed, name);
  return {.format = format,
          .granularity = std::move(granularity),
          // Packed scales come without ranges. A range computed from the scale is enough: the codes exist.
          .amax = mapped(scale, [bound = format.bound()](float s) { return s * bound; }),
          .scale = scale,
          .name = std::move(name),
          .unit = packed.unit,
          .scale_bits = dtype == DType::f8_e4m3   ? 4
                        : dtype == DType::f8_e8m0 ? kPowersOfTwo
                                                  : 0};
}

void check_scales(const PackedScales& scales, const std::string& name) {
  static_cast<void>(checked_scales(scales, name));
}

}  // namespace fq
