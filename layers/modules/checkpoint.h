#pragma once

/// Gradient checkpointing: memory for time. A block's values are not kept for backward but computed again
/// there.
///
///     set_checkpointing(model, "stage?_block?");  // resnet20 in nine blocks
///     ops::cross_entropy(model(x), labels).backward();
///
/// plan_memory (train/memory_plan.h) shows what it saves.

#include <functional>
#include <string_view>
#include <vector>

#include "fakequant/layers/modules/module.h"

namespace fq {

/// A part of a network as a function of its inputs. Whatever else it reads must be given to `checkpoint` or
/// stay as it is until backward is done.
using BlockFunction = std::function<Variable(const std::vector<Variable>& inputs)>;

/// block(inputs). Backward keeps the inputs alone and runs the block again: what it saves lives only while
/// the gradients of this block are made. Time grows by one more forward pass of the block.
///
/// Inputs may be floats, codes or sums; sums take four bytes an element, so that with folded batch norm
/// blocks that begin with sums may save nothing. The second run gives the bits of the first: dropout draws
/// the same numbers, running statistics and ranges move once. Gradients have the bits of a plain call.
/// `parameters` are those that the block reads besides its inputs; they must not change before backward, nor
/// may modes of its modules.
///
/// It is a plain call where nothing is recorded, where somebody traces, and within a block.
[[nodiscard]] Variable checkpoint(const BlockFunction& block, const std::vector<Variable>& inputs,
                                  const std::vector<Variable>& parameters);

/// Makes checkpoints of the modules whose path matches (`*` any run of characters, `?` one); the model must
/// then outlive backward. An empty pattern takes all checkpoints away.
///
/// In a Graph, nodes that follow each other and share a beginning that matches are one block: "stage?_block?"
/// makes one of stage1_block1_conv1 to stage1_block1_relu2. Beginnings end before '_' or '.', the shortest
/// one counts. What lies below a block belongs to it.
///
/// Throws ArgumentError when nothing matches, and for nodes of which others read more than the last one's
/// value.
void set_checkpointing(Module& model, std::string_view pattern);

}  // namespace fq
