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
/// A network is one module, called like a function: `model(x)`. What reads networks (quantize, summaries,
/// export) traces the operators that a call runs, so that any C++ between the layers is right, as long as
/// shapes decide where it goes and not values.

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
/// Where a child hangs: whoever holds the slot sees what replaces it.
struct Slot {
  std::shared_ptr<Module> module;
};
/// Throws ArgumentError: the parent of this child works with another type.
[[noreturn]] void throw_other_type(const Module& child);
}  // namespace detail

/// A child of type T, or of a type derived from it: `quantize` puts a QuantLinear where a Linear was. Copies
/// refer to the same slot. `replace` takes any module: a parent that only calls its child runs that, and one
/// that asks for more than T has gets ArgumentError naming the child.
template <class T>
class Child {
 public:
  Child() = default;
  explicit Child(std::shared_ptr<detail::Slot> slot) : slot_(std::move(slot)) {}
  /// The child as it is now; null where another type replaced it.
  [[nodiscard]] T* get() const noexcept { return dynamic_cast<T*>(slot_->module.get()); }
  /// The child, to ask it for what T has. Throws ArgumentError where another type replaced it.
  T* operator->() const {
    if (T* child = get()) return child;
    detail::throw_other_type(*slot_->module);
  }
  T& operator*() const { return *operator->(); }
  /// Runs the child under its name.
  template <class... Variables>
  Variable operator()(const Variables&... inputs) const {
    return (*slot_->module)(inputs...);
  }

 private:
  std::shared_ptr<detail::Slot> slot_;
};

/// Derive from it, register parameters, buffers and children in the constructor, and override `forward`: the
/// overload of one Variable, or that of several. Call a module by `operator()`, which pushes its name on the
/// path of traces and profiles, not by `forward`.
///
/// A parameter is a leaf of the tape, held by handle: optimizers, averages and quantized counterparts share
/// it. Models are shared by pointer and not copied. Several threads may run one model at once in evaluation
/// mode; whatever changes a model needs it alone.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;  // parameters have identity: models are shared by pointer
  Module& operator=(const Module&) = delete;

  /// Runs the module on one input, or on several. A module of one input refuses a list of several, a module
  /// of several a single Variable: ArgumentError. Whether the call is recorded for backward is up to NoGrad,
  /// not to the mode.
  Variable operator()(const Variable& x);
  Variable operator()(const Variable& a, const Variable& b) { return (*this)(std::vector<Variable>{a, b}); }
  Variable operator()(const std::vector<Variable>& inputs);

  /// "conv2d", "sequential", ..: the name of the type in model files, in printing, and for QuantRule::module.
  [[nodiscard]] virtual std::string type() const { return "module"; }
  /// The options of this module for printing: "3 -> 64, kernel 3x3, stride 2".
  [[nodiscard]] virtual std::string describe() const { return {}; }

  /// Parameters of this module and of all below it, "conv1.weight", in the order of registration, parents
  /// first. One that is registered twice is there under both names.
  [[nodiscard]] std::vector<std::pair<std::string, Variable>> named_parameters() const;
  /// The same without names, each once however many names it has.
  [[nodiscard]] std::vector<Variable> parameters() const;
  /// Buffers, such as running statistics: tensors that are saved and moved with the model, but not trained.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> named_buffers() const;
  /// The places of all modules below this one by their paths, parents first; this module's own place is not
  /// among them.
  [[nodiscard]] std::vector<std::pair<std::string, std::shared_ptr<detail::Slot>>> named_slots() const;
  /// This module under "" and all below it by their paths, parents first. The pointers hold until a module is
  /// replaced.
  [[nodiscard]] std::vector<std::pair<std::string, Module*>> named_modules();
  /// The module below this one at that path, "stage1.conv2". Throws ArgumentError naming the nearest paths.
  [[nodiscard]] Module& at(std::string_view path);
  /// Puts another module at that path, in the mode of the one before; whoever holds it as a Child runs the
  /// new one. Parameters are not carried over (`adopt` does that). Throws ArgumentError as `at`.
  void replace(std::string_view path, std::shared_ptr<Module> module);

  /// Sets training or evaluation mode for this module and all below it. A new module is in training mode. The
  /// mode decides what dropout and batch norm do and whether running ranges move, nothing else. A thread that
  /// traces sees the mode that it traces in.
  void train(bool on = true);
  void eval() { train(false); }
  [[nodiscard]] bool training() const noexcept { return context().training.value_or(training_); }
  /// Forgets the gradients of all parameters.
  void zero_grad();
  /// Moves parameters and buffers, of this module and all below it, to the CPU or a GPU; gradients are
  /// dropped. Make optimizers after that: their state stays where it was made. Inputs must be on the same
  /// device; ranges of quantizers stay on the host. Throws ArgumentError for `meta`.
  void to(Device device);
  /// Where the first parameter or buffer is; the CPU without any.
  [[nodiscard]] Device device() const;
  /// Whether calls of this module are checkpoints: see set_checkpointing (layers/modules/checkpoint.h).
  void set_checkpointed(bool on) noexcept { checkpointed_ = on; }
  [[nodiscard]] bool checkpointed() const noexcept { return checkpointed_; }

 protected:
  /// What the module computes, of one input. Throws ArgumentError unless it is overridden.
  virtual Variable forward(const Variable& x);
  /// What it computes of several inputs; unless overridden it hands a single one on and refuses more.
  virtual Variable forward(const std::vector<Variable>& inputs);
  /// Called when `train` or `eval` sets the mode, before the children's. A trace, which has a mode of its
  /// own, does not call it.
  virtual void on_mode_change() {}
  /// Called when `to` has moved the parameters and buffers: it is for whatever else a module keeps. Handles
  /// of buffers are asked for anew there, by `buffer`.
  virtual void on_device_change(Device) {}

  /// Registers a parameter, a leaf that takes a gradient, and returns a handle of it to keep. Its path is
  /// that of the module and this name.
  Variable add_parameter(std::string name, Tensor value);
  /// Registers a parameter that a part of this module made, under a name of its own.
  void add_parameter(std::string name, const Variable& parameter);
  /// Takes the parameter away again; a name that is not there changes nothing.
  void remove_parameter(std::string_view name);
  /// Registers a buffer and returns a handle of it to write to. After a move the handle is an old one:
  /// `buffer` gives the present one.
  Tensor add_buffer(std::string name, Tensor value);
  /// The buffer as it is now; undefined when there is none of that name.
  [[nodiscard]] Tensor buffer(std::string_view name) const;
  /// Registers a child and returns its place. A name may be a path, "layer1.0.conv1". Throws ArgumentError
  /// for null, for a name that is taken, has a '/', or has an empty part between dots.
  template <class T>
  Child<T> add_module(std::string name, std::shared_ptr<T> module) {
    return Child<T>(add_slot(std::move(name), std::move(module)));
  }
  /// Takes over name, mode, parameters and buffers of the module that this one replaces; the parameters are
  /// the same ones, not copies.
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

/// Prints the tree: one line for each module with type and options, children indented.
std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace fq
