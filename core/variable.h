#pragma once

/// Variable: a node of the tape.
///
///     Variable w(Tensor::full({1, 3}, 0.5), true);  // a leaf that takes a gradient
///     Variable y = ops::linear(Tensor::full({2, 3}, 1.0), w);
///     ops::mse_loss(y, Tensor::zeros({2, 1})).backward();
///     w.grad();                                     // d(loss)/d(w), f32 [1, 3]
///
/// Operators (core/ops/ops.h) take Variables and give Variables. A Tensor converts to one, so that constants
/// need no ceremony; parameters of layers are Variables already (layers/modules/module.h).

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

/// What a Variable holds: floats (also integers, such as token ids), codes, or sums not yet rounded.
using Value = std::variant<Tensor, QuantizedTensor, Accumulator>;

/// A handle to a value and, where a gradient is needed, to how it came about: copies share both. The tape
/// does not keep the value, which is freed with the last handle, apart from what an operator saved for
/// backward.
///
/// The value is floats (Tensor), codes (QuantizedTensor), or sums not yet rounded (Accumulator). A layer does
/// not ask which: `tensor()` always gives floats, and operators take whichever form they can use. Values of
/// the last two kinds are immutable. Gradients are floats, with respect to the dequantized value.
///
/// One variable may be read by several threads; a backward pass, and whatever sets a gradient or a value,
/// needs its leaves alone.
class Variable {
 public:
  /// Undefined. Operators take it for "not given" where they say so, as a layer without a bias does.
  Variable() = default;
  /// A leaf that shares the tensor: a constant of the tape or, with `requires_grad`, a parameter.
  Variable(Tensor value,
           bool requires_grad = false);  // NOLINT(google-explicit-constructor): a constant of the tape
  /// A leaf that holds codes, such as those of a compressed weight.
  explicit Variable(QuantizedTensor value);
  /// A leaf that holds sums.
  explicit Variable(Accumulator value);

  [[nodiscard]] bool defined() const noexcept { return node_ != nullptr; }
  /// Logical shape of the value, of whichever kind it is: asking codes or sums converts nothing. This
  /// function, and all others that read a value, throw ArgumentError when the variable is undefined.
  [[nodiscard]] Shape shape() const;
  /// Size along `axis`, negative from the back. Throws ArgumentError when out of range.
  [[nodiscard]] std::int64_t dim(int axis) const;
  /// The number of axes, and of elements.
  [[nodiscard]] int rank() const { return static_cast<int>(shape().size()); }
  [[nodiscard]] std::int64_t numel() const { return fq::numel(shape()); }
  /// Where the value is, and how it lies in memory.
  [[nodiscard]] Device device() const;
  [[nodiscard]] Layout layout() const;
  /// The value in the form that it has, for std::visit and std::get_if.
  [[nodiscard]] const Value& value() const;

  /// The codes when the value is of that kind, else null. The pointer is good as long as this value lives.
  [[nodiscard]] const QuantizedTensor* quantized() const noexcept;
  /// The sums when the value is of that kind, else null; the pointer is good as long.
  [[nodiscard]] const Accumulator* accumulator() const noexcept;
  /// The same value as floats: this variable itself when it holds a Tensor already, otherwise one node that
  /// is shared by all who ask and kept as long as this value, so that it is converted once and its consumers'
  /// gradients are summed.
  [[nodiscard]] Variable as_float() const;
  /// The value as floats, the tensor of `as_float`: codes give fl(code * scale), sums are scaled and have
  /// their pending ReLU applied. It is f32 for those; a Tensor keeps its dtype.
  [[nodiscard]] Tensor tensor() const;
  /// The only element, as a double. Throws ArgumentError unless there is exactly one. Waits for a GPU.
  [[nodiscard]] double item() const { return tensor().item(); }

  /// Whether `backward` of what is made of this value reaches it: that is a leaf that was told so, or the
  /// result of an operator that was recorded.
  [[nodiscard]] bool requires_grad() const noexcept;
  /// Asks for a gradient, or for none, which drops the one there is. Throws ArgumentError for the result of
  /// an operator: use `detach` to cut it off.
  void set_requires_grad(bool on);
  /// Whether it was made by a constructor or `detach`, not by an operator.
  [[nodiscard]] bool is_leaf() const noexcept;
  /// The sum of the gradients of all backward passes since `zero_grad`. It has this shape and is undefined
  /// before the first pass. Only leaves keep one.
  [[nodiscard]] const Tensor& grad() const;
  /// Puts a gradient in place of the sum; an undefined one takes it away. Throws ArgumentError for another
  /// shape, and where no gradient is asked for.
  void set_grad(Tensor grad);
  /// Forgets the gradient: `grad` is undefined again.
  void zero_grad();
  /// Replaces the value of a leaf by another tensor, for all handles of this variable. The dtype and device
  /// may be others. Throws ArgumentError for another shape and for the result of an operator.
  void set_tensor(Tensor value);
  /// The leaf's own tensor, to write to, as optimizers do: writing bumps its version, by which codes that are
  /// kept of a weight are made anew. Throws ArgumentError for the result of an operator, for codes and for
  /// sums.
  [[nodiscard]] Tensor& mutable_tensor();
  /// A new leaf without gradient that shares the value: what is made of it does not reach back through this
  /// one.
  [[nodiscard]] Variable detach() const;

  /// Adds d(this)/d(leaf) * seed to the gradient of every leaf that requires one, and frees the tape behind
  /// this node: a second pass needs a second forward. The seed is 1 for a value of one element; else it must
  /// be given, with this shape.
  ///
  /// Throws ArgumentError when nothing was recorded, when run twice, or when a tensor that an operator saved
  /// was written to since; the message names the operator and both versions.
  void backward(Tensor seed = {}) const;

  /// The node itself, by which two handles of one variable are told from two equal ones; null when undefined.
  /// While this thread gives the leaf another value (detail::StandIns), the node of that.
  [[nodiscard]] const std::shared_ptr<detail::Node>& node() const noexcept {
    return context().stand_ins == nullptr ? node_ : stand_in();
  }
  /// A handle of a node, as operators make it.
  [[nodiscard]] static Variable from_node(std::shared_ptr<detail::Node> node);

 private:
  [[nodiscard]] const std::shared_ptr<detail::Node>& stand_in() const noexcept;

  std::shared_ptr<detail::Node> node_;
};

/// While it lives, nothing is recorded on this thread: results require no gradient, and what backward would
/// need is not kept. Evaluation runs under it.
///
///     const NoGrad quiet;
///     const Tensor y = model(x).tensor();
class NoGrad : public ScopedValue<bool> {
 public:
  NoGrad() : ScopedValue(context().records, false) {}
};
/// Whether operators that are called on this thread go on the tape: they do unless a NoGrad lives.
[[nodiscard]] inline bool grad_enabled() noexcept { return context().records; }

}  // namespace fq
