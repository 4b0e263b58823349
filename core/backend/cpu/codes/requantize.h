#pragma once

/// Sums of products to codes and mask in one pass.

#include "fakequant/core/accumulator.h"
#include "fakequant/core/backend/cpu/codes/grid.h"

namespace fq::cpu {

/// Fills out.codes and, if defined, out.mask. `relu`: codes are at least 0 and the mask is open at 0.
void requantize_products(const ProductSums& x, const GridRow& row, bool relu, QuantizedTensor& out);
void requantize_normalized(const NormalizedSums& x, const GridRow& row, bool relu, QuantizedTensor& out);

}  // namespace fq::cpu
