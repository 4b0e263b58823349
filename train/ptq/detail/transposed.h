#pragma once

/// A matrix the other way.

#include <cstdint>

#include "fakequant/core/tensor.h"

namespace fq::ptq {

/// f32 [columns, rows] of a row-major x whose elements are rows of so many columns.
[[nodiscard]] Tensor transposed(const Tensor& x, std::int64_t columns);

}  // namespace fq::ptq
