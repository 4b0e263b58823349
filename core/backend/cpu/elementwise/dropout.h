#pragma once

/// Dropout.

#include "fakequant/core/backend/dropout_blocks.h"

namespace fq::cpu {

/// mask (u8, row-major) = 1 where an element is kept.
void keep_mask(const detail::DropoutBlocks& blocks, Tensor& mask);
/// y = x * scale where kept, +0 elsewhere; all of one layout.
void keep(const Tensor& x, const Tensor& mask, double scale, Tensor& y);

}  // namespace fq::cpu
