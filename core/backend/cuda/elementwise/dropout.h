#pragma once

/// Dropout.

#include "fakequant/core/backend/dropout_blocks.h"

namespace fq::cuda {

void keep_mask(const fq::detail::DropoutBlocks& blocks, Tensor& mask);
void keep(const Tensor& x, const Tensor& mask, double scale, Tensor& y);

}  // namespace fq::cuda
