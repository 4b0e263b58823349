#pragma once

/// Gradient checkpointing saves memory and costs time. Backward recomputes the values of a block instead of
/// keeping them.
///
///     set_checkpointing(model, "stage?_block?");  // resnet20 in nine blocks
///     ops::cross_entropy(model(x), labels).backward();
///
/// plan_memory (train/memory_plan.h) shows the saved memory.

#include <functional>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// A part of a network as a function of its inputs. Every other value that it reads must be passed to
/// `checkpoint`, or stay unchanged until backward has finished.
using BlockFunction = std::function<Variable(const std::vector<Variable>& inputs)>;

/// Computes block(inputs). Backward keeps only the inputs and runs the block again. The recomputed values
/// live only during the backward pass of this block. The cost is one more forward pass of the block.
///
/// Inputs may be floats, codes or integer sums. Sums take four bytes per element. With folded batch norm,
/// blocks that begin with sums may therefore save no memory. The second run gives the same bits as the first:
/// dropout draws the same numbers, and running statistics and ranges are updated once. Gradients have the
/// bits of a plain call. `parameters` are the parameters that the block reads in addition to its inputs. They
/// and the modes of its modules must not change before backward.
///
/// It is a plain call if nothing is recorded, during a trace, and within another block.
[[nodiscard]] Variable checkpoint(const BlockFunction& block, const std::vector<Variable>& inputs,
                                  const std::vector<Variable>& parameters);

/// Turns the modules whose path matches into checkpoints (`*` matches any characters, `?` one character). The
/// model must then outlive backward. An empty pattern removes all checkpoints.
///
/// In a Graph, consecutive nodes whose names share a matching prefix form one block: "stage?_block?" makes
/// one block of stage1_block1_conv1 to stage1_block1_relu2. A prefix ends before '_' or '.'. The shortest
/// matching prefix counts. Modules below a block belong to the block.
///
/// Throws ArgumentError if nothing matches, or if nodes outside the block read values other than its output.
void set_checkpointing(Module& model, std::string_view pattern);

}  // namespace fq
