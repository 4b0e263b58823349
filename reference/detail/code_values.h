#pragma once

/// The values of codes that are for storage only.

#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// The minifloat of f8_e4m3, f8_e5m2 or f4_e2m1.
[[nodiscard]] Minifloat dtype_minifloat(DType dtype);
/// f32 values of the codes [begin, begin + count) of a row-major tensor of a type that is_storage_only.
void decode_values(const Tensor& codes, std::int64_t begin, std::int64_t count, float* values);

// Codes of a minifloat for runs of values, in loops that vectorise.

/// Bytes of the values, rounded and saturated.
inline void encode_bytes(const float* values, std::int64_t count, const Minifloat& format,
                         std::uint8_t* bytes) {
  const Minifloat grid = format;  // a copy of its own: bytes may alias anything
  std::uint8_t* __restrict out = bytes;
  for (std::int64_t k = 0; k < count; ++k) out[k] = grid.encode(grid.round(values[k]));
}

/// Replaces values by their codes, as floats.
inline void encode_floats(float* values, std::int64_t count, const Minifloat& format) {
  const Minifloat grid = format;
  for (std::int64_t k = 0; k < count; ++k)
    values[k] = static_cast<float>(static_cast<std::int32_t>(grid.encode(grid.round(values[k]))));
}

}  // namespace fq::detail
