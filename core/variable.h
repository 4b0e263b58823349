#pragma once

/// Variable: a node of the tape.
///
///     Variable w(Tensor::full({1, 3}, 0.5), true);  // a leaf that takes a gradient
///     Variable y = ops::linear(Tensor::full({2, 3}, 1.0), w);
///     ops::mse_loss(y, Tensor::zeros({2, 1})).backward();
///     w.grad();                                     // d(loss)/d(w), f32 [1, 3]

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

/// What a Variable holds: floats (also token ids), codes, or sums not yet rounded.
using Value = std::variant<Tensor, QuantizedTensor, Accumulator>;

/// A handle to a value and, where a gradient is needed, to how it came about: copies share both. The tape
/// does not keep the value: it is freed with the last handle, apart from what an operator saved for backward.
/// The value is floats (Tensor), codes (QuantizedTensor), or sums not yet rounded (Accumulator). Values of
/// the last two kinds are immutable. Gradients are float, with respect to the dequantized value.
class Variable {
 public:
  /// Undefined: operators take it for "not given" where they say so.
  Variable() = default;
  /// A leaf that shares the tensor: a constant of the tape or, with `requires_grad`, a parameter.
  Variable(Tensor value,
           bool requires_grad = false);  // NOLINT(google-explicit-constructor): a constant of the tape
  /// Leaves that hold codes, or sums.
  explicit Variable(QuantizedTensor value);
  explicit Variable(Accumulator value);

  [[nodiscard]] bool defined() const noexcept { return node_ != nullptr; }
  /// Logical shape, device and layout of the value, of whichever kind it is. These and all that read a value
  /// throw ArgumentError when undefined.
  [[nodiscard]] Shape shape() const;
  [[nodiscard]] std::int64_t dim(int axis) const;
  [[nodiscard]] int rank() const { return static_cast<int>(shape().size()); }
  [[nodiscard]] std::int64_t numel() const { return fq::numel(shape()); }
  [[nodiscard]] Device device() const;
  [[nodiscard]] Layout layout() const;
  [[nodiscard]] const Value& value() const;

  /// Codes or sums when the value is of that kind, else null; they live as long as this variable.
  [[nodiscard]] const QuantizedTensor* quantized() const noexcept;
  [[nodiscard]] const Accumulator* accumulator() const noexcept;
  /// The same value as floats: itself when it is a Tensor already; otherwise one node shared by all who ask,
  /// kept as long as this value, so that it is converted once and its consumers' gradients are summed.
  [[nodiscard]] Variable as_float() const;
  /// The value as floats, the tensor of `as_float`: code * scale of codes, sums scaled and with their ReLU.
  [[nodiscard]] Tensor tensor() const;
  /// The only element, as a double. Throws ArgumentError unless there is exactly one. Waits for a GPU.
  [[nodiscard]] double item() const { return tensor().item(); }

  /// Whether `backward` of what is made of this value reaches it: a leaf that was told so, or the result of
  /// an operator that was recorded.
  [[nodiscard]] bool requires_grad() const noexcept;
  /// Asks for a gradient, or for none, which drops the one there is. Throws ArgumentError for the result of
  /// an operator.
  void set_requires_grad(bool on);
  [[nodiscard]] bool is_leaf() const noexcept;
  /// The sum of the gradients of all backward passes since `zero_grad`: of this shape, undefined before the
  /// first pass. Only leaves keep one.
  [[nodiscard]] const Tensor& grad() const;
  /// Puts a gradient in place of the sum; an undefined one takes it away. Throws ArgumentError for another
  /// shape, and where no gradient is asked for.
  void set_grad(Tensor grad);
  /// Forgets the gradient: `grad` is undefined again.
  void zero_grad();
  /// Replaces the value of a leaf by another tensor, for all handles of this variable. Throws ArgumentError
  /// for another shape and for the result of an operator.
  void set_tensor(Tensor value);
  /// The leaf's own tensor, to write to (optimizers): writing bumps its version. Throws ArgumentError for the
  /// result of an operator, codes and sums.
  [[nodiscard]] Tensor& mutable_tensor();
  /// A new leaf without gradient that shares the value.
  [[nodiscard]] Variable detach() const;

  /// Adds d(this)/d(leaf) * seed to every leaf that requires a gradient, and frees the tape behind this node.
  /// The seed is 1 for one element, else it must be given with this shape.
  /// Throws ArgumentError when nothing was recorded, when run twice, or when a saved value was changed since.
  void backward(Tensor seed = {}) const;

  /// The node itself, by which two handles of one variable are told from two equal ones; null when undefined.
  [[nodiscard]] const std::shared_ptr<detail::Node>& node() const noexcept { return node_; }
  [[nodiscard]] static Variable from_node(std::shared_ptr<detail::Node> node);

 private:
  std::shared_ptr<detail::Node> node_;
};

/// While it lives, nothing is recorded on this thread: results require no gradient, and what backward would
/// need is not kept.
class NoGrad : public ScopedValue<bool> {
 public:
  NoGrad() : ScopedValue(context().records, false) {}
};
/// Whether operators called on this thread go on the tape: unless a NoGrad lives.
[[nodiscard]] inline bool grad_enabled() noexcept { return context().records; }

}  // namespace fq
