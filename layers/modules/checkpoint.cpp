#include "fakequant/layers/modules/checkpoint.h"

#include <memory>
#include <utility>

#include "fakequant/core/context.h"
#include "fakequant/core/detail/rerun.h"
#include "fakequant/core/random.h"
#include "fakequant/core/tape.h"

namespace fq {
namespace detail {
namespace {

/// What the second run begins with.
struct Block {
  BlockFunction run;
  std::vector<Variable> inputs;  // leaves that take a gradient where it is asked for
  std::vector<Saved> saved;      // to find out that one was written to
  RandomStream random = random_stream();
  BackwardType numbers = backward_type();
  std::string path = module_path();
  Rerun rerun;
};

/// Leaves with the same values that take a gradient where the originals do.
std::vector<Variable> leaves_of(const std::vector<Variable>& inputs) {
  std::vector<Variable> out;
  for (const Variable& input : inputs) {
    out.push_back(input.detach());
    if (input.requires_grad()) out.back().set_requires_grad(true);
  }
  return out;
}

Saved saved_floats(const Variable& x) {
  const auto* floats = std::get_if<Tensor>(&x.value());
  return floats != nullptr ? Saved(*floats) : Saved();
}

Variable first_run(Block& block) {
  const NoGrad no_grad;
  const ScopedValue scope(context().rerun, &block.rerun);
  return block.run(leaves_of(block.inputs));
}

Variable second_run(Block& block) {
  block.rerun.begin_again();
  const ScopedValue random(context().random, block.random);
  const ScopedValue records(context().records, true);
  const ScopedValue scope(context().rerun, &block.rerun);
  return block.run(block.inputs);
}

/// Gradients of the parameters go to themselves; returned are those of the inputs, and one for the anchor.
std::vector<Tensor> gradients(Block& block, const Tensor& dy) {
  for (const Saved& saved : block.saved) (void)saved.get();
  const ScopedValue path(context().path, block.path);
  const BackwardScope numbers(block.numbers);
  const Variable y = second_run(block);
  if (y.requires_grad()) y.backward(dy);
  std::vector<Tensor> out;
  for (const Variable& leaf : block.inputs)
    out.push_back(leaf.grad().defined() || !leaf.requires_grad()
                      ? leaf.grad()
                      : Tensor::zeros(leaf.shape(), dy.dtype(), dy.device()));
  out.push_back(Tensor::zeros({}, dy.dtype(), dy.device()));
  return out;
}

}  // namespace
}  // namespace detail

Variable checkpoint(const BlockFunction& run, const std::vector<Variable>& inputs,
                    const std::vector<Variable>& parameters) {
  const bool recorded = detail::needs_grad(inputs) || detail::needs_grad(parameters);
  if (!recorded || recorder() != nullptr || detail::rerun() != nullptr) return run(inputs);
  auto block = std::make_shared<detail::Block>();
  block->run = run;
  for (const auto* list : {&inputs, &parameters})
    for (const Variable& x : *list) block->saved.push_back(detail::saved_floats(x));
  block->inputs = detail::leaves_of(inputs);
  const Variable y = detail::first_run(*block);
  auto read = inputs;
  read.emplace_back(Tensor::zeros({}, DType::f32, y.device()),
                    true);  // for blocks whose inputs need no gradient
  return detail::record("checkpoint", y.value(), std::move(read),
                        [block](const Tensor& dy) { return detail::gradients(*block, dy); });
}

}  // namespace fq
