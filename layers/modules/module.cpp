#include "fakequant/layers/modules/module.h"

#include <algorithm>
#include <ostream>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/profile.h"
#include "fakequant/core/trace.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/layers/modules/detail/call_cache.h"

namespace fq {

using detail::join_path;

namespace {

/// Accepts a name, "conv1", or a path, "layer1.0.conv1".
bool is_child_name(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos &&
         name.find("..") == std::string_view::npos && name.front() != '.' && name.back() != '.';
}

}  // namespace

Variable Module::operator()(const Variable& x) {
  const PathScope scope(name_);
  // type() allocates, so it is called only if a profiler is active.
  const ProfileScope profile(profiler() != nullptr ? type() : std::string(), "forward");
  const auto run = [&] { return checkpointed_ ? run_checkpointed({x}) : forward(x); };
  detail::CallCache* cache = detail::call_cache();
  return cache != nullptr ? cache->call(*this, {x}, run) : run();
}

Variable Module::operator()(const std::vector<Variable>& inputs) {
  const PathScope scope(name_);
  const ProfileScope profile(profiler() != nullptr ? type() : std::string(), "forward");
  const auto run = [&] { return checkpointed_ ? run_checkpointed(inputs) : forward(inputs); };
  detail::CallCache* cache = detail::call_cache();
  return cache != nullptr ? cache->call(*this, inputs, run) : run();
}

// parameters() includes the parameters of submodules, which the block reads too.
Variable Module::run_checkpointed(const std::vector<Variable>& all) {
  return checkpoint(
      [this](const std::vector<Variable>& inputs) {
        return inputs.size() == 1 ? forward(inputs[0]) : forward(inputs);
      },
      all, parameters());
}

Variable Module::forward(const Variable&) {
  throw ArgumentError(fmt::format("[{}] '{}' requires several inputs: call it with a list", type(), name_));
}

Variable Module::forward(const std::vector<Variable>& inputs) {
  FQ_CHECK(inputs.size() == 1, type(), "{} inputs for '{}': use one", inputs.size(), name_);
  return forward(inputs[0]);
}

std::vector<std::pair<std::string, std::shared_ptr<detail::Slot>>> Module::named_slots() const {
  std::vector<std::pair<std::string, std::shared_ptr<detail::Slot>>> out;
  for (const auto& [name, slot] : children_) {
    out.emplace_back(name, slot);
    // Depth first: a module comes before its parts.
    for (auto& [inner, below] : slot->module->named_slots()) out.emplace_back(join_path(name, inner), below);
  }
  return out;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> out{{"", this}};
  for (const auto& [name, slot] : named_slots()) out.emplace_back(name, slot->module.get());
  return out;
}

std::vector<std::pair<std::string, Variable>> Module::named_parameters() const {
  auto out = parameters_;
  for (const auto& [path, slot] : named_slots())
    for (const auto& [name, value] : slot->module->parameters_)
      out.emplace_back(join_path(path, name), value);
  return out;
}

std::vector<Variable> Module::parameters() const {
  std::vector<Variable> out;
  for (auto& [name, value] : named_parameters())
    // Tied parameters are listed once: an optimizer must not update them twice.
    if (std::ranges::none_of(out, [node = value.node()](const Variable& v) { return v.node() == node; }))
      out.push_back(value);
  return out;
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers() const {
  auto out = buffers_;
  for (const auto& [path, slot] : named_slots())
    for (const auto& [name, value] : slot->module->buffers_) out.emplace_back(join_path(path, name), value);
  return out;
}

Module& Module::at(std::string_view path) {
  std::vector<std::string> paths;
  for (const auto& [name, slot] : named_slots()) {
    if (name == path) return *slot->module;
    paths.push_back(name);
  }
  throw ArgumentError(
      fmt::format("[module] there is no module '{}'{}", path, detail::did_you_mean(path, paths)));
}

void detail::throw_other_type(const Module& child) {
  throw ArgumentError(fmt::format(
      "[module] the child '{}' is a {}, which its parent cannot work with: replace it by a module of "
      "the type that the parent was made with",
      child.name_, child.type()));
}

void Module::replace(std::string_view path, std::shared_ptr<Module> module) {
  // Throws for an unknown path, with suggestions.
  (void)at(path);
  for (const auto& [name, slot] : named_slots()) {
    if (name != path) continue;
    module->name_ = slot->module->name_;
    module->train(slot->module->training_);
    module->checkpointed_ = slot->module->checkpointed_;
    // Every Child shares the slot and so runs the new module.
    slot->module = std::move(module);
    return;
  }
}

void Module::train(bool on) {
  training_ = on;
  handle_mode_change();
  for (const auto& [name, slot] : children_) slot->module->train(on);
}

void Module::zero_grad() {
  for (auto& parameter : parameters()) parameter.zero_grad();
}

void Module::to(Device where) {
  FQ_CHECK(!where.is_meta(), "module", "a model on meta has no values: use cpu or cuda");
  for (auto& [name, parameter] : parameters_) {
    // The Variable keeps its identity, so optimizers and tied layers still refer to it.
    if (parameter.device() == where) continue;
    // Gradients are on the old device.
    parameter.zero_grad();
    parameter.set_tensor(parameter.tensor().to(where));
  }
  for (auto& [name, value] : buffers_) value = value.to(where);
  handle_device_change(where);
  for (const auto& [name, slot] : children_) slot->module->to(where);
}

std::optional<Device> Module::first_device() const {
  // All parameters of a model are on one device, so the first one decides.
  if (!parameters_.empty()) return parameters_.front().second.device();
  if (!buffers_.empty()) return buffers_.front().second.device();
  for (const auto& [name, slot] : children_)
    if (const auto found = slot->module->first_device()) return found;
  return std::nullopt;
}

Device Module::device() const { return first_device().value_or(Device::cpu()); }

Variable Module::add_parameter(std::string name, Tensor value) {
  parameters_.emplace_back(std::move(name), Variable(std::move(value), true));
  return parameters_.back().second;
}

void Module::add_parameter(std::string name, const Variable& parameter) {
  parameters_.emplace_back(std::move(name), parameter);
}

void Module::remove_parameter(std::string_view name) {
  std::erase_if(parameters_, [&](const auto& entry) { return entry.first == name; });
}

Tensor Module::add_buffer(std::string name, Tensor value) {
  buffers_.emplace_back(std::move(name), std::move(value));
  return buffers_.back().second;
}

std::shared_ptr<detail::Slot> Module::add_slot(std::string name, std::shared_ptr<Module> module) {
  FQ_CHECK(module != nullptr, "add_module", "the child '{}' is null", name);
  FQ_CHECK(is_child_name(name), "add_module",
           "'{}' is not a name for a child: use one without '/' and without empty parts between dots", name);
  FQ_CHECK(std::ranges::none_of(children_, [&](const auto& child) { return child.first == name; }),
           "add_module", "there are two children named '{}'", name);
  module->name_ = name;
  auto slot = std::make_shared<detail::Slot>(detail::Slot{std::move(module)});
  children_.emplace_back(std::move(name), slot);
  return slot;
}

Tensor Module::buffer(std::string_view name) const {
  const auto found = std::ranges::find(buffers_, name, &std::pair<std::string, Tensor>::first);
  return found == buffers_.end() ? Tensor() : found->second;
}

void Module::adopt(const Module& other) {
  name_ = other.name_;
  training_ = other.training_;
  // Handles, not copies: an optimizer that was made before still trains the quantized layer.
  parameters_ = other.parameters_;
  buffers_ = other.buffers_;
}

std::ostream& operator<<(std::ostream& out, const Module& module) {
  out << module.type() << '(' << module.describe() << ")\n";
  for (const auto& [path, slot] : module.named_slots()) {
    const auto depth = static_cast<std::size_t>(std::ranges::count(path, '.'));
    out << std::string(2 * depth + 2, ' ') << path.substr(path.rfind('.') + 1) << ": " << slot->module->type()
        << '(' << slot->module->describe() << ")\n";
  }
  return out;
}

}  // namespace fq
