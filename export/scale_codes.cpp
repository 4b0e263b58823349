#include "fakequant/export/scale_codes.h"

#include <cmath>

#include "fakequant/core/check.h"
#include "fakequant/core/minifloat.h"

namespace fq::detail {

Tensor scale_codes(const Tensor& scales, const QuantSpec& spec) {
  const bool e4m3 = spec.scale_bits == 4;
  FQ_CHECK(e4m3 || spec.scale_bits == 1, "scale_codes",
           "the scales of '{}' are any floats: they have no codes", spec.name);
  Tensor codes = Tensor::empty(scales.shape(), e4m3 ? DType::f8_e4m3 : DType::f8_e8m0);
  const Minifloat grid = Minifloat::of({4, 3});
  auto* out = static_cast<std::uint8_t*>(codes.mutable_raw());
  const auto* s = scales.data<float>();
  for (std::int64_t i = 0; i < scales.numel(); ++i)
    out[i] = e4m3 ? grid.encode(grid.round(s[i] / spec.unit)) : encode_e8m0(std::ilogb(s[i]));
  return codes;
}

}  // namespace fq::detail
