#pragma once

/// A weight of engines that round rows as they run, as the kernels of a device multiply it.

#include <memory>

#include "fakequant/core/tensor.h"

namespace fq::detail {

struct PackedWeight;

struct EngineOperand {
  std::shared_ptr<const PackedWeight> packed;  ///< of the host; on CUDA null, with these instead:
  Tensor codes;                                ///< i8 [outputs, columns]
  Tensor scales;                               ///< f32 [outputs, blocks]
  Tensor zero_terms;      ///< XNNPACK: f32 [outputs], what a zero point of x adds to an output
  bool in_lanes = false;  ///< ggml: eight lanes a block, the order of plain buffers
};

}  // namespace fq::detail
