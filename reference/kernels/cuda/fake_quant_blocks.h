#pragma once

/// Fake quantization by blocks on a device, as reference/kernels/cpu/fake_quant_blocks.h has it.
/// `scales.globals` are on that device; scales and bounds of blocks may be on the host.

#include "fakequant/core/tensor.h"
#include "fakequant/reference/detail/block_scales.h"
#include "fakequant/reference/kernels/cpu/fake_quant_kernels.h"

namespace fq::cuda {

void fake_quant_fp4(const Tensor& x, const Tensor& scales, const Tensor& bounds, Tensor& y, Tensor* mask);
void fake_quant_blocks(const Tensor& x, std::int64_t block, const cpu::ElementGrid& grid,
                       const fq::detail::BlockScales& scales, float bound, Tensor& y, Tensor* mask);
void fake_quant_nvfp4(const Tensor& x, float global, float bound, Tensor& y, Tensor* mask);

/// One thread a block.
void fake_quant_rows(const Tensor& x, std::int64_t block, const cpu::ElementGrid& grid, bool half_away,
                     const fq::detail::BlockScales& scales, Tensor& y);
void fake_quant_nvfp4_rows(const Tensor& x, float global, Tensor& y);

}  // namespace fq::cuda
