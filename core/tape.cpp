#include "fakequant/core/tape.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "fakequant/core/check.h"
#include "fakequant/core/convert.h"

namespace fq {
namespace detail {

bool needs_grad(const std::vector<Variable>& inputs) noexcept {
  return grad_enabled() && std::ranges::any_of(inputs, &Variable::requires_grad);
}

Variable record(std::string_view op, Value value, std::vector<Variable> inputs, Backward backward,
                Attributes attributes) {
  auto node = std::make_shared<Node>();
  node->value = std::move(value);
  node->op = op;
  Variable out = Variable::from_node(node);
  if (Recorder* trace = recorder()) trace->on_op(op, inputs, out, std::move(attributes));
  if (needs_grad(inputs)) {
    node->requires_grad = true;
    node->inputs = std::move(inputs);
    node->backward = std::move(backward);
  }
  return out;
}

const Tensor& Saved::get() const {
  FQ_CHECK(!tensor_.defined() || tensor_.version() == version_, "backward",
           "{} was changed since the forward pass (version {}, saved {}): run backward before writing to it",
           tensor_.describe(), tensor_.version(), version_);
  return tensor_;
}

void accumulate(Tensor& a, const Tensor& b) {
  if (!a.defined()) {
    a = b;
    return;
  }
  if (bit_width(a.dtype()) == 16) {
    Tensor wide = a.to(DType::f32);
    accumulate(wide, b.to(DType::f32));
    a = wide.to(a.dtype());
    return;
  }
  const Tensor same = b.to(a.layout()).to(a.dtype());
  Tensor sum = a.storage().use_count() == 1 ? a : Tensor::empty(a.shape(), a.dtype(), a.device(), a.layout());
  if (a.device().is_cpu())
    visit_float(a.dtype(), "backward", [&]<class T>(T) {
      const T* x = a.data<T>(a.layout());
      const T* y = same.data<T>(a.layout());
      T* z = sum.mutable_data<T>(a.layout());
#pragma omp parallel for simd schedule(static) if (a.numel() > 65536)
      for (std::int64_t i = 0; i < a.numel(); ++i) z[i] = x[i] + y[i];
    });
  a = std::move(sum);
}

namespace {

/// Nodes reachable through inputs that require a gradient, every node after all of its readers.
std::vector<std::shared_ptr<Node>> readers_first(const std::shared_ptr<Node>& root) {
  std::vector<std::shared_ptr<Node>> order;
  std::unordered_set<const Node*> seen;
  std::vector<std::pair<std::shared_ptr<Node>, std::size_t>> stack{{root, 0}};
  seen.insert(root.get());
  while (!stack.empty()) {
    auto& [node, next] = stack.back();
    if (next == node->inputs.size()) {
      order.push_back(node);
      stack.pop_back();
      continue;
    }
    const auto& input = node->inputs[next++].node();
    if (input && input->requires_grad && seen.insert(input.get()).second) stack.emplace_back(input, 0);
  }
  std::ranges::reverse(order);
  return order;
}

void propagate(Node& node, Tensor dy, std::unordered_map<const Node*, Tensor>& gradients) {
  FQ_CHECK(!node.freed, "backward", "{} was already passed backward: run forward again", node.op);
  const Layout layout = Variable(Variable::from_node(std::shared_ptr<Node>(&node, [](Node*) {}))).layout();
  const auto parts = node.backward(dy.to(layout));
  dy = {};
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const auto& input = node.inputs[i].node();
    if (!input || !input->requires_grad) continue;
    FQ_CHECK(i < parts.size() && parts[i].defined() && parts[i].shape() == node.inputs[i].shape(), "backward",
             "{} gave no gradient of the shape of its input {}", node.op, i);
    accumulate(gradients[input.get()], parts[i]);
  }
  node.inputs.clear();
  node.backward = nullptr;
  node.freed = true;
}

}  // namespace
}  // namespace detail

void Variable::backward(Tensor seed) const {
  FQ_CHECK(requires_grad(), "backward", "nothing was recorded: no input requires a gradient");
  if (!seed.defined()) {
    FQ_CHECK(numel() == 1, "backward", "the value is {}: give a seed of that shape", to_string(shape()));
    const auto* floats = std::get_if<Tensor>(&value());
    seed = Tensor::full(shape(), 1.0, floats != nullptr ? floats->dtype() : DType::f32, device());
  }
  FQ_CHECK(seed.shape() == shape(), "backward", "the seed is {}, the value {}", to_string(seed.shape()),
           to_string(shape()));
  const NoGrad no_grad;
  std::unordered_map<const detail::Node*, Tensor> gradients{{node_.get(), std::move(seed)}};
  for (const auto& node : detail::readers_first(node_)) {
    auto entry = gradients.extract(node.get());
    if (entry.empty()) continue;
    if (node->op.empty()) detail::accumulate(node->grad, entry.mapped());
    else detail::propagate(*node, std::move(entry.mapped()), gradients);
  }
}

}  // namespace fq
