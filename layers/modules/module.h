#pragma once

/// Module: a part of a network, with parameters, buffers and children.
///
///     class Residual : public Module {
///      public:
///       Residual(std::int64_t n) : linear_(add_module("linear", std::make_shared<Linear>(n, n))) {}
///
///      protected:
///       Variable forward(const Variable& x) override { return ops::add(x, linear_(x)); }
///       using Module::forward;
///
///      private:
///       Child<Linear> linear_;
///     };
///
/// A network is one module, called like a function: `model(x)`. `quantize`, summaries and exports trace the
/// operators that a call runs. The code between the layers may therefore be any C++, provided that its
/// control flow depends on shapes and not on values.

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

class Module;
class TensorQuantizer;
class StateDict;

namespace detail {
/// Holds a child. Every Child that shares the slot sees a replacement.
struct Slot {
  std::shared_ptr<Module> module;
};
/// Throws ArgumentError: the parent needs a child of another type.
[[noreturn]] void throw_other_type(const Module& child);
}  // namespace detail

/// A child of type T or of a derived type: `quantize` replaces a Linear by a QuantLinear. Copies refer
/// to the same slot. `replace` accepts any module. A parent that only calls its child runs the new module. A
/// parent that uses members of T gets an ArgumentError that names the child.
template <class T>
class Child {
 public:
  Child() = default;
  explicit Child(std::shared_ptr<detail::Slot> slot) : slot_(std::move(slot)) {}
  /// Returns the current child. Returns null if a module of another type replaced it.
  [[nodiscard]] T* get() const noexcept { return dynamic_cast<T*>(slot_->module.get()); }
  /// Returns the child for access to members of T. Throws ArgumentError if a module of another type replaced
  /// it.
  T* operator->() const {
    if (T* child = get()) return child;
    detail::throw_other_type(*slot_->module);
  }
  T& operator*() const { return *operator->(); }
  /// Runs the child. Traces and profiles record its name.
  template <class... Variables>
  Variable operator()(const Variables&... inputs) const {
    return (*slot_->module)(inputs...);
  }

 private:
  std::shared_ptr<detail::Slot> slot_;
};

/// Base class of all layers and networks. Derive from it, register parameters, buffers and children in the
/// constructor, and override one `forward`: for one Variable, or for several. Call a module with
/// `operator()`, not with `forward`: `operator()` adds the module's name to the path of traces and profiles.
///
/// A parameter is a leaf of the tape. Optimizers, averages and quantized counterparts share it. Models are
/// shared by pointer and not copied. In evaluation mode several threads may run one model at once. A thread
/// that changes a model must be the only one that uses it.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // parameters have identity: models are shared by pointer
  Module& operator=(const Module&) = delete;

  /// Runs the module on one input or on several. Throws ArgumentError if a module of one input gets several,
  /// or a module of several inputs a single Variable. NoGrad, not the mode, decides whether the call is
  /// recorded for backward.
  Variable operator()(const Variable& x);
  Variable operator()(const Variable& a, const Variable& b) { return (*this)(std::vector<Variable>{a, b}); }
  Variable operator()(const std::vector<Variable>& inputs);

  /// Returns the type name, like "conv2d", used in model files, in printing, and in QuantRule::module.
  [[nodiscard]] virtual std::string type() const { return "module"; }
  /// Returns the options for printing: "3 -> 64, kernel 3x3, stride 2".
  [[nodiscard]] virtual std::string describe() const { return {}; }

  /// Returns the parameters of this module and of all modules below it by path, like "conv1.weight". They
  /// are in order of registration, parents first. A parameter that is registered twice appears under both
  /// names.
  [[nodiscard]] std::vector<std::pair<std::string, Variable>> named_parameters() const;
  /// Returns the parameters without names, each once.
  [[nodiscard]] std::vector<Variable> parameters() const;
  /// Returns the buffers, like running statistics: tensors that are saved and moved with the model, but
  /// not trained.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  /// Returns the slots of all modules below this one by path, parents first. The slot of this module is not
  /// included.
  [[nodiscard]] std::vector<std::pair<std::string, std::shared_ptr<detail::Slot>>> named_slots() const;
  /// Returns this module under "" and all modules below it by path, parents first. The pointers are valid
  /// until a module is replaced.
  [[nodiscard]] std::vector<std::pair<std::string, Module*>> named_modules();
  /// Returns the module at a path like "stage1.conv2". Throws ArgumentError that names the nearest paths.
  [[nodiscard]] Module& at(std::string_view path);
  /// Replaces the module at a path and gives the new module the mode of the old one. Every Child that refers
  /// to it runs the new module. Parameters are not copied: use `adopt`. Throws ArgumentError as `at`.
  void replace(std::string_view path, std::shared_ptr<Module> module);

  /// Sets training or evaluation mode for this module and all modules below it. A new module is in training
  /// mode. The mode affects only dropout, batch norm and the update of running ranges. A thread that traces
  /// uses the mode of the trace.
  void train(bool on = true);
  void eval() { train(false); }
  [[nodiscard]] bool training() const noexcept { return context().training.value_or(training_); }
  /// Clears the gradients of all parameters.
  void zero_grad();
  /// Moves the parameters and buffers of this module and of all modules below it to the CPU or a GPU.
  /// Gradients are dropped. Create optimizers afterwards, because their state does not move. Inputs must be
  /// on the same device. Ranges of quantizers stay on the host. Throws ArgumentError for `meta`.
  void to(Device device);
  /// Returns the device of the first parameter or buffer, or the CPU if there are none.
  [[nodiscard]] Device device() const;
  /// Whether calls of this module are checkpoints: see set_checkpointing (layers/modules/checkpoint.h).
  void set_checkpointed(bool on) noexcept { checkpointed_ = on; }
  [[nodiscard]] bool checkpointed() const noexcept { return checkpointed_; }

 protected:
  /// Computes the output from one input. Throws ArgumentError unless overridden.
  virtual Variable forward(const Variable& x);
  /// Computes the output from several inputs. By default passes a single input to the other overload and
  /// throws for more.
  virtual Variable forward(const std::vector<Variable>& inputs);
  /// Called when `train` or `eval` sets the mode, before the same call on the children. A trace has its own
  /// mode and does not call it.
  virtual void handle_mode_change() {}
  /// Called after `to` has moved the parameters and buffers. Override it to move other state. Get new handles
  /// of buffers with `buffer`.
  virtual void handle_device_change(Device) {}

  /// Registers a parameter, a leaf that takes a gradient, and returns its handle. Its path is the path of the
  /// module and this name.
  Variable add_parameter(std::string name, Tensor value);
  /// Registers an existing parameter of a part of this module under a new name.
  void add_parameter(std::string name, const Variable& parameter);
  /// Removes a parameter. An unknown name has no effect.
  void remove_parameter(std::string_view name);
  /// Registers a buffer and returns a handle to write to. A move to another device invalidates the handle:
  /// call `buffer` again.
  Tensor add_buffer(std::string name, Tensor value);
  /// Returns the current buffer, or an undefined tensor if the name is unknown.
  [[nodiscard]] Tensor buffer(std::string_view name) const;
  /// Registers a child and returns it. A name may be a path, "layer1.0.conv1". Throws ArgumentError if the
  /// module is null, or if the name is already used, contains '/', or has an empty part between dots.
  template <class T>
  Child<T> add_module(std::string name, std::shared_ptr<T> module) {
    return Child<T>(add_slot(std::move(name), std::move(module)));
  }
  /// Takes over name, mode, parameters and buffers of the module that this one replaces. Both modules then
  /// share the parameters.
  void adopt(const Module& other);

 private:
  friend void detail::throw_other_type(const Module& child);
  [[nodiscard]] std::optional<Device> first_device() const;
  Variable run_checkpointed(const std::vector<Variable>& all);
  std::shared_ptr<detail::Slot> add_slot(std::string name, std::shared_ptr<Module> module);

  std::string name_;
  bool training_ = true, checkpointed_ = false;
  std::vector<std::pair<std::string, Variable>> parameters_;
  std::vector<std::pair<std::string, Tensor>> buffers_;
  std::vector<std::pair<std::string, std::shared_ptr<detail::Slot>>> children_;
};

/// Prints the module tree: one line per module with type and options, children indented.
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace fq
