#include "fakequant/layers/modules/detail/call_cache.h"

#include <algorithm>
#include <utility>

#include "fakequant/core/trace.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {
namespace {

// Shared storage is the common case, and costs no comparison of elements.
bool same_tensor(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.layout() != b.layout() || a.shape() != b.shape()) return false;
  return a.raw() == b.raw() || (a.device() == b.device() && bitwise_equal(a, b));
}

bool same_value(const Variable& a, const Variable& b) {
  if (a.node() == b.node()) return true;
  if (!a.defined() || !b.defined()) return false;
  const auto *x = std::get_if<Tensor>(&a.value()), *y = std::get_if<Tensor>(&b.value());
  return x != nullptr && y != nullptr && same_tensor(*x, *y);
}

/// Returns the value in a new node. Data cached on the node during one run (codes, rounded values) is freed
/// after the run.
Variable fresh(const Variable& kept) {
  const auto* tensor = std::get_if<Tensor>(&kept.value());
  return tensor != nullptr ? Variable(*tensor) : kept;
}

}  // namespace

void CallCache::keep() {
  calls_.clear();
  changed_.clear();
  mode_ = Mode::keep;
}

void CallCache::look_up(std::unordered_set<const Module*> changed) {
  changed_ = std::move(changed);
  mode_ = Mode::look_up;
}

void CallCache::pass() { mode_ = Mode::pass; }

const CallCache::Call* CallCache::find(const Module& module, const std::vector<Variable>& inputs) const {
  const auto calls = calls_.find(&module);
  if (calls == calls_.end()) return nullptr;
  // A module may be called several times in one run, so its calls are compared by their inputs.
  const auto found = std::ranges::find_if(
      calls->second, [&](const Call& call) { return std::ranges::equal(call.inputs, inputs, same_value); });
  return found == calls->second.end() ? nullptr : &*found;
}

Variable CallCache::call(const Module& module, const std::vector<Variable>& inputs,
                         const std::function<Variable()>& compute) {
  // The output of a quantizer also depends on its range, which calibration changes between runs.
  if (dynamic_cast<const TensorQuantizer*>(&module) != nullptr) return compute();
  if (mode_ == Mode::look_up && !changed_.contains(&module))
    if (const Call* known = find(module, inputs); known != nullptr) return fresh(known->output);
  if (counted_.contains(module_path())) ++computed_;
  Variable output = compute();
  if (mode_ == Mode::keep) calls_[&module].push_back({inputs, output});
  return output;
}

}  // namespace fq::detail
