#pragma once

/// How much memory a training step takes, found by running one on `meta`: nothing is computed or allocated.
///
///     const MemoryPlan plan = plan_memory(model, {64, 3, 32, 32}, {.kind = "sgd"});
///     std::cout << plan.peak / 1048576 << " MiB at most\n";
///
/// Use it to choose a batch size, or the blocks of set_checkpointing (layers/modules/checkpoint.h).

#include <cstdint>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/train/optimizer.h"

namespace fq {

class Module;

/// Bytes, as the allocator of host memory rounds blocks up.
struct MemoryPlan {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;  ///< of the parameters
  std::int64_t optimizer_state = 0;
  std::int64_t weight_codes = 0;  ///< codes and masks of quantized weights, kept for a whole step
  std::int64_t input = 0;
  /// What else lives when the forward pass is done: values that the backward pass reads, masks, the output.
  std::int64_t saved_activations = 0;
  std::int64_t peak = 0;  ///< the most that lives at once, all of the above included
};

/// The plan of one step in training mode, for an input of that shape, batch included: forward, cross-entropy
/// (of an output [N, C] of several; others are passed backward as they are), backward and the optimizer's
/// state.
///
/// The model is only read: other threads may evaluate it meanwhile. Bytes on `meta` are counted for all
/// threads together: none but other plans, which wait for each other, may trace meanwhile. Scratch memory of
/// products is not in it, nor what the data loader holds. Throws ArgumentError when the shape does not fit,
/// naming the operator.
[[nodiscard]] MemoryPlan plan_memory(Module& model, const Shape& input_shape,
                                     const OptimizerOptions& optimizer = {});

}  // namespace fq
