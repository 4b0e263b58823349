#include "fakequant/layers/modules/checkpoint.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "fakequant/core/context.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/rerun.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/random.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/model/graph.h"

namespace fq {
namespace detail {
namespace {

/// The state that the second run needs.
struct Block {
  BlockFunction run;
  // Leaves with the values of the inputs. They take a gradient if the inputs do.
  std::vector<Variable> inputs;
  // Versions of the inputs and parameters, to detect that a value was changed before backward.
  std::vector<Saved> saved;
  RandomStream random = random_stream();
  BackwardType numbers = backward_type();
  std::string path = module_path();
  Rerun rerun;
};

/// Returns leaves with the same values. A leaf takes a gradient if its original does.
std::vector<Variable> make_leaves(const std::vector<Variable>& inputs) {
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

// Runs on copies of the leaves, so that values cached on them are freed with the run.
Variable first_run(Block& block) {
  const NoGrad no_grad;
  const ScopedValue scope(context().rerun, &block.rerun);
  return block.run(make_leaves(block.inputs));
}

Variable second_run(Block& block) {
  block.rerun.begin_again();
  // The stream at the start of the block: dropout draws the same numbers again.
  const ScopedValue random(context().random, block.random);
  const ScopedValue records(context().records, true);
  const ScopedValue scope(context().rerun, &block.rerun);
  return block.run(block.inputs);
}

/// Adds the gradients of parameters to the parameters. Returns the gradients of the inputs, and one for the
/// anchor.
std::vector<Tensor> gradients(Block& block, const Tensor& dy) {
  // get() throws if a value was written since the first run, which would make the second run differ.
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
  // Blocks do not nest: the outer block recomputes everything anyway.
  if (!recorded || recorder() != nullptr || detail::rerun() != nullptr) return run(inputs);
  auto block = std::make_shared<detail::Block>();
  block->run = run;
  for (const auto* list : {&inputs, &parameters})
    for (const Variable& x : *list) block->saved.push_back(detail::saved_floats(x));
  block->inputs = detail::make_leaves(inputs);
  const Variable y = detail::first_run(*block);
  auto read = inputs;
  read.emplace_back(Tensor::zeros({}, DType::f32, y.device()),
                    true);  // gives blocks whose inputs need no gradient a backward node
  return detail::record("checkpoint", y.value(), std::move(read),
                        [block](const Tensor& dy) { return detail::gradients(*block, dy); });
}

namespace {

using detail::join_path;

/// Returns the shortest matching prefix of the path, which ends before '_' or '.'. Returns the whole path if
/// only that matches, or an empty text.
std::string matching_prefix(std::string_view pattern, const std::string& path) {
  for (std::size_t end = path.find_first_of("_."); end != std::string::npos;
       end = path.find_first_of("_.", end + 1))
    if (detail::wildcard_match(pattern, path.substr(0, end))) return path.substr(0, end);
  return detail::wildcard_match(pattern, path) ? path : std::string();
}

bool below(const std::vector<std::string>& blocks, const std::string& path) {
  return std::ranges::any_of(
      blocks, [&](const std::string& block) { return path == block || path.starts_with(block + "."); });
}

}  // namespace

void set_checkpointing(Module& model, std::string_view pattern) {
  const auto modules = model.named_modules();
  for (const auto& [path, module] : modules) {
    module->set_checkpointed(false);
    if (auto* graph = dynamic_cast<Graph*>(module))
      (void)graph->set_blocks([](const auto&) { return std::string(); });
  }
  if (pattern.empty()) return;
  std::vector<std::string> covered;
  for (const auto& [path, module] : modules) {
    // named_modules lists parents first, so an inner block of a covered module is skipped.
    if (below(covered, path)) continue;
    if (!path.empty() && detail::wildcard_match(pattern, path)) {
      module->set_checkpointed(true);
      covered.push_back(path);
    } else if (auto* graph = dynamic_cast<Graph*>(module)) {
      const auto steps = graph->set_blocks([&, prefix = path](const std::string& name) {
        return matching_prefix(pattern, join_path(prefix, name));
      });
      for (const auto& step : steps) covered.push_back(join_path(path, step));
    }
  }
  std::vector<std::string> paths;
  for (const auto& [path, module] : modules) paths.push_back(path);
  FQ_CHECK(!covered.empty(), "set_checkpointing", "no module and no block of nodes is named '{}'{}", pattern,
           detail::did_you_mean(pattern, paths));
}

}  // namespace fq
