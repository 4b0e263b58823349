#pragma once

/// A weight of engines that round rows as they run, as the kernels of a device multiply it.

#include "fakequant/core/backend/cpu/engines/engine_products.h"
#include "fakequant/core/quantized.h"

namespace fq::detail {

/// On the host packed in strips; elsewhere the codes as they are, and what belongs to them.
struct EngineOperand {
  cpu::PackedWeight packed;
  Tensor codes;           ///< i8 [outputs, columns]
  Tensor scales;          ///< f32 [outputs, blocks]
  Tensor zero_terms;      ///< XNNPACK: f32 [outputs], what a zero point of x adds to an output
  bool in_lanes = false;  ///< ggml: eight lanes a block, the order of plain buffers
};

}  // namespace fq::detail
