#pragma once

/// Dropout; not a public header.

#include "fakequant/core/dropout_blocks.h"

namespace fq::cuda {

void keep_mask(const fq::detail::DropoutBlocks& blocks, Tensor& mask);
void keep(const Tensor& x, const Tensor& mask, double scale, Tensor& y);

}  // namespace fq::cuda
