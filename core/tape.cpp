#include "fakequant/core/tape.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/convert.h"
#include "fakequant/core/detail/device_traits.h"
#include "fakequant/core/detail/leaf_scopes.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/profile.h"

namespace fq {
namespace detail {

bool needs_grad(const std::vector<Variable>& inputs) noexcept {
  return grad_enabled() && std::ranges::any_of(inputs, &Variable::requires_grad);
}

bool reusable(const Node& other, bool with_gradient) noexcept {
  return with_gradient ? other.gradient != nullptr && !other.gradient->freed : other.gradient == nullptr;
}

const Tensor& PendingGradient::evaluate() {
  if (scale) {
    // The kernel writes in place, and computes a mask too.
    if (values.storage().use_count() != 1) values = values.clone();
    run(values.device(), &Kernels::scale_weight_gradient, values, scale->x, scale->w, scale->axis, mask);
    scale.reset();
    mask = {};
  }
  if (mask.defined()) values = masked_gradient(values, std::exchange(mask, {}));
  if (activation) {
    Tensor dx = gradient_buffer(values);
    run(dx.device(), &Kernels::activate_backward, values, std::exchange(saved, {}), *activation, dx);
    activation.reset();
    values = std::move(dx);
  }
  return values;
}

void PendingGradient::add_mask(const Tensor& bits) {
  if (!bits.defined()) return;
  if (mask.defined() || activation || values.layout() != bits.layout()) evaluate();
  if (values.layout() == bits.layout())
    mask = bits;
  else
    values = apply_mask(values, bits);
}

void PendingGradient::add_slope(std::shared_ptr<const Activation> f, Tensor argument) {
  if (activation) evaluate();
  activation = std::move(f);
  saved = std::move(argument);
}

std::vector<PendingGradient> pass_gradient(BackwardCall& call) { return {std::move(call.dy)}; }

Variable record(std::string_view op, Value value, std::vector<Variable> inputs, Backward backward,
                Attributes attributes) {
  const auto evaluated = [backward = std::move(backward)](BackwardCall& call) {
    call.dy.evaluate();
    const std::vector<Tensor> parts = backward(call.dy.values);
    return std::vector<PendingGradient>(parts.begin(), parts.end());
  };
  return record(op, std::move(value), std::move(inputs), FusedBackward(evaluated), std::move(attributes));
}

Variable record(std::string_view op, Value value, std::vector<Variable> inputs, FusedBackward backward,
                Attributes attributes) {
  auto node = std::make_shared<Node>();
  node->value = std::move(value);
  node->leaf = false;
  // A trace needs the operator even if nothing is recorded for backward.
  Variable out = Variable::from_node(node);
  if (Recorder* trace = recorder()) trace->record_op(op, inputs, out, std::move(attributes));
  if (!needs_grad(inputs)) return out;
  node->gradient = std::make_shared<Gradient>();
  Gradient& gradient = *node->gradient;
  gradient.op = op;
  gradient.path = module_path();
  gradient.shape = out.shape();
  gradient.layout = out.layout();
  gradient.backward = std::move(backward);
  for (const auto& input : inputs)
    // Links only tape nodes, not values: a value is freed when its last reader and saved copy are.
    gradient.inputs.push_back(input.defined() ? input.node()->gradient : nullptr);
  return out;
}

Tensor gradient_buffer(const Tensor& dy) {
  if (dy.storage().use_count() == 1) return dy;
  return Tensor::empty(dy.shape(), dy.dtype(), dy.device(), dy.layout());
}

Tensor masked_gradient(const Tensor& dy, const Tensor& mask) {
  if (!mask.defined() || dy.layout() != mask.layout()) return apply_mask(dy, mask);
  Tensor out = gradient_buffer(dy);
  run(out.device(), &Kernels::apply_mask, dy, mask, out);
  return out;
}

const Tensor& Saved::get() const {
  FQ_CHECK(!tensor_.defined() || tensor_.version() == version_, "backward",
           "{} was changed since the forward pass ({} times): run backward before writing to it",
           tensor_.describe(), tensor_.version() - version_);
  return tensor_;
}

Variable with_recompute(Variable y, Again again) {
  if (y.requires_grad() && !y.device().is_cuda()) y.node()->again = std::move(again);
  return y;
}
Variable made_of_codes(Variable y) {
  y.node()->of_codes = true;
  return y;
}
bool is_of_codes(const Variable& x) noexcept { return x.node()->of_codes; }
Again recompute_function(const Variable& x) { return x.requires_grad() ? x.node()->again : Again(); }

SavedFloats::SavedFloats(const Variable& x) : again_(recompute_function(x)) {
  if (!again_) tensor_ = Saved(std::get<Tensor>(x.value()));
}
Tensor SavedFloats::get() const { return again_ ? std::get<Tensor>(again_()) : tensor_.get(); }

void accumulate(Tensor& a, const Tensor& b) {
  if (!a.defined()) {
    a = b;
    return;
  }
  // f16 and bf16 sums of many readers would lose small gradients.
  if (bit_width(a.dtype()) == 16) {
    Tensor wide = a.to(DType::f32);
    accumulate(wide, b.to(DType::f32));
    a = wide.to(a.dtype());
    return;
  }
  const Tensor same = b.to(a.layout()).to(a.dtype());
  Tensor sum = a.storage().use_count() == 1 ? a : Tensor::empty(a.shape(), a.dtype(), a.device(), a.layout());
  run(a.device(), &Kernels::combine, a, same, Add{}, sum);
  a = std::move(sum);
}

namespace {

thread_local const LeafScope::Ready* leaf_callback = nullptr;

/// Returns the nodes reachable from `root` through inputs, each after all of its readers. Uses an explicit
/// stack: recursion would overflow on a long tape.
std::vector<std::shared_ptr<Gradient>> readers_first(const std::shared_ptr<Gradient>& root) {
  std::vector<std::shared_ptr<Gradient>> order;
  std::unordered_set<const Gradient*> seen{root.get()};
  std::vector<std::pair<std::shared_ptr<Gradient>, std::size_t>> stack{{root, 0}};
  while (!stack.empty()) {
    auto& [gradient, next] = stack.back();
    if (next == gradient->inputs.size()) {
      order.push_back(gradient);
      stack.pop_back();
      continue;
    }
    const auto input = gradient->inputs[next++];
    if (input && seen.insert(input.get()).second) stack.emplace_back(input, 0);
  }
  std::ranges::reverse(order);
  return order;
}

using Sums = std::unordered_map<const Gradient*, PendingGradient>;

bool launches(const Tensor& t) { return device_traits(t.device()).launches; }

/// Adds a gradient to a sum. The first one stays pending.
void add_gradient(PendingGradient& sum, PendingGradient part) {
  if (!sum.values.defined()) {
    sum = std::move(part);
    return;
  }
  sum.evaluate();
  part.evaluate();
  accumulate(sum.values, part.values);
}

void propagate(Gradient& from, PendingGradient seed, Sums& sums) {
  std::optional<ScopedValue<std::string>> path;
  // The profile shows backward work in the module of the forward call.
  if (profiler() != nullptr) path.emplace(context().path, from.path);
  const ProfileScope profile(from.op, "backward");
  FQ_CHECK(!from.freed, "backward", "backward of {} has already run: run forward again", from.op);
  if (seed.values.layout() != from.layout) seed = seed.evaluate().to(from.layout);
  const auto take_sum = [&](std::size_t i, const Tensor& like) -> Tensor {
    const auto sum = sums.find(from.inputs[i].get());
    if (sum == sums.end() || sum->second.values.layout() != like.layout() ||
        sum->second.values.dtype() != like.dtype())
      return {};
    sum->second.evaluate();
    return std::exchange(sum->second.values, {});
  };
  // The call has the only handle: an operator may then write the gradient in place.
  BackwardCall call{std::move(seed), take_sum};
  auto parts = from.backward(call);
  call.dy = {};
  for (std::size_t i = 0; i < from.inputs.size(); ++i) {
    const auto& input = from.inputs[i];
    if (!input) continue;
    FQ_CHECK(i < parts.size() && parts[i].values.defined() && parts[i].values.shape() == input->shape,
             "backward", "{} returned no gradient with the shape of its input {}", from.op, i);
    if (!launches(parts[i].values)) parts[i].evaluate();
    add_gradient(sums[input.get()], std::move(parts[i]));
  }
  // Frees the saved tensors now instead of at the end of the whole pass.
  from.inputs.clear();
  from.backward = nullptr;
  from.freed = true;
}

}  // namespace

std::vector<Tensor> input_gradients(const Gradient& node, const Tensor& dy) {
  BackwardCall call{dy.to(node.layout), [](std::size_t, const Tensor&) { return Tensor(); }};
  std::vector<Tensor> out;
  for (auto& part : node.backward(call)) out.push_back(part.evaluate());
  return out;
}

LeafScope::LeafScope(Ready ready) : ready_(std::move(ready)) { leaf_callback = &ready_; }
LeafScope::~LeafScope() { leaf_callback = nullptr; }

}  // namespace detail

void Variable::backward(Tensor seed) const {
  FQ_CHECK(requires_grad(), "backward", "nothing was recorded: no input requires a gradient");
  if (!seed.defined()) {
    FQ_CHECK(numel() == 1, "backward", "the value is {}: use a seed of that shape", to_string(shape()));
    const auto* floats = std::get_if<Tensor>(&value());
    seed = Tensor::full(shape(), 1.0, floats != nullptr ? floats->dtype() : DType::f32, device());
  }
  FQ_CHECK(seed.shape() == shape(), "backward", "the seed is {}, the value {}", to_string(seed.shape()),
           to_string(shape()));
  const NoGrad no_grad;
  const auto* on_leaf = detail::leaf_callback;
  // A backward pass inside this one (of a checkpointed block) must not report its leaves.
  const ScopedValue<const detail::LeafScope::Ready*> outermost(detail::leaf_callback, nullptr);
  const auto& root = node()->gradient;
  detail::Sums sums;
  // Sums are local to this pass, so a leaf keeps the sum over all passes and other nodes keep none.
  sums[root.get()] = std::move(seed);
  for (const auto& gradient : detail::readers_first(root)) {
    auto entry = sums.extract(gradient.get());
    // All readers of a node come before it in the order: its sum is complete here, and its memory moves to
    // `propagate`.
    if (entry.empty()) continue;
    if (!gradient->op.empty()) {
      detail::propagate(*gradient, std::move(entry.mapped()), sums);
      continue;
    }
    detail::accumulate(gradient->sum, entry.mapped().evaluate());
    if (on_leaf != nullptr) (*on_leaf)(*gradient);
  }
}

}  // namespace fq
