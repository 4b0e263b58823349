#pragma once

/// Fake quantization of tensors by blocks of consecutive row-major elements, one pass from memory to memory.
///
/// Common to all: x is f32, f16 or bf16, row-major; y has its shape and type; mask is null or u1 of the same
/// shape: |x| <= bound.

#include "fakequant/core/tensor.h"
#include "fakequant/reference/detail/block_scales.h"
#include "fakequant/reference/kernels/cpu/fake_quant_kernels.h"

namespace fq::cpu {

/// FP4 in blocks of equal length with scales given beforehand, as many as there are blocks, and bounds of as
/// many elements; both f32. With one block x may have any layout.
void fake_quant_fp4(const Tensor& x, const Tensor& scales, const Tensor& bounds, Tensor& y, Tensor* mask);

/// Blocks of `block` elements, 8, 16 or 32, which divides x.numel().
void fake_quant_blocks(const Tensor& x, std::int64_t block, const ElementGrid& grid,
                       const detail::BlockScales& scales, float bound, Tensor& y, Tensor* mask);
/// FP4 in blocks of 16 with scales of nvfp4_scale: `global` is the scale of scales.
void fake_quant_nvfp4(const Tensor& x, float global, float bound, Tensor& y, Tensor* mask);

/// Blocks of any length along the last axis, the last one of a row as long as what is left, without a mask.
/// `half_away`: E3M0 instead of the grid.
void fake_quant_rows(const Tensor& x, std::int64_t block, const ElementGrid& grid, bool half_away,
                     const detail::BlockScales& scales, Tensor& y);
/// As fake_quant_nvfp4, likewise.
void fake_quant_nvfp4_rows(const Tensor& x, float global, Tensor& y);

}  // namespace fq::cpu
