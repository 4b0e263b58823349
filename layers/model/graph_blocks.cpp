#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/modules/checkpoint.h"

namespace fq {

std::vector<std::string> Graph::set_blocks(const std::function<std::string(const std::string&)>& step_block) {
  std::vector<Block> blocks;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const std::string name = step_block(steps_[i].name);
    if (name.empty()) continue;
    names.push_back(steps_[i].name);
    // Only consecutive steps form a block, because a block runs as one call.
    if (!blocks.empty() && blocks.back().name == name && blocks.back().end == i)
      ++blocks.back().end;
    else
      blocks.push_back({name, i, i + 1, {}});
  }
  for (Block& block : blocks) find_reads(block);
  blocks_ = std::move(blocks);
  return names;
}

/// Value 0 is the input of the network. Value i + 1 is the output of step i.
void Graph::find_reads(Block& block) const {
  for (std::size_t i = 0; i < steps_.size(); ++i)
    for (const auto value : steps_[i].inputs) {
      // Inside a block a step may read anything; outside, only the block's output, since its other values are
      // not kept.
      const bool inside =
          block.begin <= i && i<block.end, made_inside = value> block.begin && value <= block.end;
      FQ_CHECK(inside || !made_inside || value == block.end, "set_checkpointing",
               "'{}' reads '{}', which is not the last node of the block '{}': choose another pattern",
               steps_[i].name, steps_[value - 1].name, block.name);
      if (inside && !made_inside && std::ranges::find(block.reads, value) == block.reads.end())
        block.reads.push_back(value);
    }
}

// The checkpoint needs to know all parameters that get a gradient from the block.
std::vector<Variable> Graph::block_parameters(const Block& block) const {
  std::vector<Variable> out;
  for (std::size_t i = block.begin; i < block.end; ++i)
    for (const auto& parameter : steps_[i].module->parameters()) out.push_back(parameter);
  return out;
}

void Graph::run_block(const Block& block, Values& values) const {
  const auto run = [this, block](const std::vector<Variable>& inputs) {
    Values own(steps_.size() + 1);
    for (std::size_t i = 0; i < inputs.size(); ++i) own[block.reads[i]] = inputs[i];
    run_steps(block.begin, block.end, own);
    return own[block.end];
  };
  std::vector<Variable> inputs;
  for (const auto value : block.reads) inputs.push_back(values[value]);
  values[block.end] = checkpoint(run, inputs, block_parameters(block));
  // Releases the references before the values are dropped, so that memory is freed here.
  inputs.clear();
  for (std::size_t i = block.begin; i < block.end; ++i)
    for (const auto value : steps_[i].dead) values[value] = {};
}

}  // namespace fq
