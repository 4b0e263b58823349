#pragma once

/// Predicts the memory of a training step. Runs the step on the device `meta`, which computes and allocates
/// nothing.
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

/// Memory of a step in bytes, rounded up per block as the host allocator does.
struct MemoryPlan {
  std::int64_t parameters = 0;
  std::int64_t gradients = 0;  ///< gradients of the parameters
  std::int64_t optimizer_state = 0;
  std::int64_t weight_codes = 0;  ///< codes and masks of quantized weights, kept for a whole step
  std::int64_t input = 0;
  /// Other values that are alive after the forward pass: values that the backward pass reads, masks, the
  /// output.
  std::int64_t saved_activations = 0;
  std::int64_t peak = 0;  ///< largest number of bytes alive at once, of all kinds
};

/// Returns the memory of one step in training mode: forward pass, cross entropy, backward pass, optimizer
/// state. `input_shape` includes the batch axis. Cross entropy requires outputs [N, C] with C > 1; for other
/// outputs, the backward pass begins at the outputs.
///
/// Reads the model only: other threads may evaluate it at the same time. The bytes on `meta` are counted for
/// all threads together. So only other calls of plan_memory may run on `meta` at the same time; they wait for
/// each other. Does not count scratch memory of products and memory of the data loader. Throws ArgumentError
/// naming the operator if the shape does not fit.
[[nodiscard]] MemoryPlan plan_memory(Module& model, const Shape& input_shape,
                                     const OptimizerOptions& optimizer = {});

}  // namespace fq
