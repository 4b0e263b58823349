#pragma once

/// The values of codes that are for storage only.

#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// The minifloat of f8_e4m3, f8_e5m2 or f4_e2m1.
[[nodiscard]] Minifloat minifloat_of(DType dtype);
/// f32 values of the codes [begin, begin + count) of a row-major tensor of a type that is_storage_only.
void decode_values(const Tensor& codes, std::int64_t begin, std::int64_t count, float* values);

}  // namespace fq::detail
