#pragma once

/// Variable: a value with a gradient on the tape.
///
///     Variable w(Tensor::full({1, 3}, 0.5), true);  // a leaf with a gradient
///     Variable y = ops::linear(Tensor::full({2, 3}, 1.0), w);
///     ops::mse_loss(y, Tensor::zeros({2, 1})).backward();
///     w.grad();                                     // d(loss)/d(w), f32 [1, 3]
///
/// Operators (core/ops/ops.h) take and return Variables. A Tensor converts to a Variable implicitly, so
/// constants can be passed directly. Parameters of layers are Variables (layers/modules/module.h).

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fakequant/core/accumulator.h"
#include "fakequant/core/context.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tensor.h"

namespace fq {

namespace detail {
struct Node;
}

/// Value of a Variable: floats (also integers, for example token ids), codes, or unrounded sums.
using Value = std::variant<Tensor, QuantizedTensor, Accumulator>;

/// A handle to a value and, if a gradient is needed, to its tape node. Copies share both. The tape does not
/// keep the value: it is freed with the last handle, unless an operator saved it for backward.
///
/// The value is floats (Tensor), codes (QuantizedTensor), or unrounded sums (Accumulator). Layers need not
/// distinguish them: `tensor()` always returns floats, and operators use the form that suits them. Codes and
/// sums are immutable. Gradients are floats, with respect to the dequantized value.
///
/// Several threads may read one variable. A backward pass, and every function that sets a gradient or a
/// value, needs exclusive access to the leaves.
class Variable {
 public:
  /// Undefined. Some operators accept it as "not given", for example for a missing bias.
  Variable() = default;
  /// A leaf that shares the tensor: a constant or, with `requires_grad`, a parameter.
  Variable(Tensor value,
           bool requires_grad = false);  // NOLINT(google-explicit-constructor): a constant of the tape
  /// A leaf that holds codes, for example a compressed weight.
  explicit Variable(QuantizedTensor value);
  /// A leaf that holds sums.
  explicit Variable(Accumulator value);

  [[nodiscard]] bool defined() const noexcept { return node_ != nullptr; }
  /// Returns the logical shape of the value without converting codes or sums. All functions that read the
  /// value throw ArgumentError if the variable is undefined.
  [[nodiscard]] Shape shape() const;
  /// Returns the size along `axis`; negative axes count from the back. Throws ArgumentError if out of range.
  [[nodiscard]] std::int64_t dim(int axis) const;
  /// The number of axes, and the number of elements.
  [[nodiscard]] int rank() const { return static_cast<int>(shape().size()); }
  [[nodiscard]] std::int64_t numel() const { return fq::numel(shape()); }
  /// Device and memory order of the value.
  [[nodiscard]] Device device() const;
  [[nodiscard]] Layout layout() const;
  /// Returns the value in its current form, for std::visit and std::get_if.
  [[nodiscard]] const Value& value() const;

  /// Returns the codes if the value is a QuantizedTensor, else null. The pointer is valid for the lifetime
  /// of the value.
  [[nodiscard]] const QuantizedTensor* quantized() const noexcept;
  /// Returns the sums if the value is an Accumulator, else null. The pointer is valid for the lifetime of
  /// the value.
  [[nodiscard]] const Accumulator* accumulator() const noexcept;
  /// Returns the value as floats: this variable itself if it holds a Tensor, otherwise one cached variable
  /// that all callers share. The value is therefore converted once, and the gradients of its consumers are
  /// summed.
  [[nodiscard]] Variable as_float() const;
  /// Returns the tensor of `as_float`. Codes become fl(code * scale); sums are scaled and their pending ReLU
  /// is applied. These are f32; a Tensor keeps its dtype.
  [[nodiscard]] Tensor tensor() const;
  /// Returns the only element as double; waits for a GPU. Throws ArgumentError if the number of elements is
  /// not 1.
  [[nodiscard]] double item() const { return tensor().item(); }

  /// Whether `backward` reaches this value: it is a leaf with `requires_grad`, or the result of a recorded
  /// operator.
  [[nodiscard]] bool requires_grad() const noexcept;
  /// Enables or disables the gradient. Disabling drops the current gradient. Throws ArgumentError for the
  /// result of an operator; use `detach` there.
  void set_requires_grad(bool on);
  /// Whether a constructor or `detach` made the variable, not an operator.
  [[nodiscard]] bool is_leaf() const noexcept;
  /// Sum of the gradients of all backward passes since `zero_grad`, in the shape of the value. Undefined
  /// before the first pass. Only leaves have one.
  [[nodiscard]] const Tensor& grad() const;
  /// Replaces the gradient; an undefined tensor removes it. Throws ArgumentError for another shape, and if
  /// the variable requires no gradient.
  void set_grad(Tensor grad);
  /// Removes the gradient: `grad` is undefined again.
  void zero_grad();
  /// Replaces the value of a leaf, for all handles of this variable. Dtype and device may differ. Throws
  /// ArgumentError for another shape and for the result of an operator.
  void set_tensor(Tensor value);
  /// Returns the leaf's tensor for writing, as optimizers need. Writing changes its version, so cached
  /// weight codes are recomputed. Throws ArgumentError for the result of an operator, for codes and for
  /// sums.
  [[nodiscard]] Tensor& mutable_tensor();
  /// Returns a new leaf without gradient that shares the value. Gradients of its results do not reach this
  /// variable.
  [[nodiscard]] Variable detach() const;

  /// Adds d(this)/d(leaf) * seed to the gradient of every leaf that requires one, and frees the tape up to
  /// this node. A second pass needs a second forward pass. The seed defaults to 1 for a value of one
  /// element; otherwise it is required, with the shape of this value.
  ///
  /// Throws ArgumentError if nothing was recorded, if run twice, or if a tensor saved by an operator was
  /// written to since. The message names the operator and both versions.
  void backward(Tensor seed = {}) const;

  /// Returns the node, which identifies the variable; null when undefined. While this thread replaces the
  /// leaf's value (detail::StandIns), returns the node of the replacement.
  [[nodiscard]] const std::shared_ptr<detail::Node>& node() const noexcept {
    return context().stand_ins == nullptr ? node_ : replacement_node();
  }
  /// Creates a handle to a node. For operators.
  [[nodiscard]] static Variable from_node(std::shared_ptr<detail::Node> node);

 private:
  [[nodiscard]] const std::shared_ptr<detail::Node>& replacement_node() const noexcept;

  std::shared_ptr<detail::Node> node_;
};

/// Disables recording on this thread for the lifetime of this object: results require no gradient, and
/// nothing is saved for backward. Use it for evaluation.
///
///     const NoGrad quiet;
///     const Tensor y = model(x).tensor();
class NoGrad : public ScopedValue<bool> {
 public:
  NoGrad() : ScopedValue(context().records, false) {}
};
/// Whether this thread records operators on the tape. True unless a NoGrad lives.
[[nodiscard]] inline bool grad_enabled() noexcept { return context().records; }

}  // namespace fq
