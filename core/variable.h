#pragma once

/// Variable: a node of the tape.

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

using Value = std::variant<Tensor, QuantizedTensor, Accumulator>;

/// A handle to a value and, where a gradient is needed, to how it came about: copies share both. The tape
/// does not keep the value: it is freed with the last handle, apart from what an operator saved for backward.
/// The value is floats (Tensor), codes (QuantizedTensor), or sums not yet rounded (Accumulator). Values of
/// the last two kinds are immutable. Gradients are float, with respect to the dequantized value.
class Variable {
 public:
  Variable() = default;
  Variable(Tensor value,
           bool requires_grad = false);  // NOLINT(google-explicit-constructor): a constant of the tape
  explicit Variable(QuantizedTensor value);
  explicit Variable(Accumulator value);

  [[nodiscard]] bool defined() const noexcept { return node_ != nullptr; }
  [[nodiscard]] Shape shape() const;
  [[nodiscard]] std::int64_t dim(int axis) const;
  [[nodiscard]] int rank() const { return static_cast<int>(shape().size()); }
  [[nodiscard]] std::int64_t numel() const { return fq::numel(shape()); }
  [[nodiscard]] Device device() const;
  [[nodiscard]] Layout layout() const;
  [[nodiscard]] const Value& value() const;

  /// Codes or sums when the value is of that kind, else null.
  [[nodiscard]] const QuantizedTensor* quantized() const noexcept;
  [[nodiscard]] const Accumulator* accumulator() const noexcept;
  /// The same value as floats: itself when it is a Tensor already; otherwise one node shared by all who ask,
  /// kept as long as this value, so that it is converted once and its consumers' gradients are summed.
  [[nodiscard]] Variable as_float() const;
  /// The logical floats: `as_float()`'s tensor.
  [[nodiscard]] Tensor tensor() const;
  /// The values as host doubles' only element.
  [[nodiscard]] double item() const { return tensor().item(); }

  [[nodiscard]] bool requires_grad() const noexcept;
  /// Leaves only. Throws ArgumentError for the result of an operator.
  void set_requires_grad(bool on);
  [[nodiscard]] bool is_leaf() const noexcept;
  /// The sum of the gradients of all backward passes since `zero_grad`; undefined before the first. Leaves
  /// only.
  [[nodiscard]] const Tensor& grad() const;
  /// Throws ArgumentError for another shape, and where no gradient is asked for.
  void set_grad(Tensor grad);
  void zero_grad();
  /// Replaces the value of a leaf by another tensor of the same shape.
  void set_tensor(Tensor value);
  /// The leaf's own tensor, to write to (optimizers): writing bumps its version.
  [[nodiscard]] Tensor& mutable_tensor();
  /// The same value, cut from the tape.
  [[nodiscard]] Variable detach() const;

  /// Adds d(this)/d(leaf) * seed to every leaf that requires a gradient, and frees the tape behind this node.
  /// The seed is 1 for one element, else it must be given with this shape.
  /// Throws ArgumentError when nothing was recorded, when run twice, or when a saved value was changed since.
  void backward(Tensor seed = {}) const;

  [[nodiscard]] const std::shared_ptr<detail::Node>& node() const noexcept { return node_; }
  [[nodiscard]] static Variable from_node(std::shared_ptr<detail::Node> node);

 private:
  std::shared_ptr<detail::Node> node_;
};

/// While it lives, nothing is recorded on this thread.
class NoGrad : public ScopedValue<bool> {
 public:
  NoGrad() : ScopedValue(context().records, false) {}
};
[[nodiscard]] inline bool grad_enabled() noexcept { return context().records; }

}  // namespace fq
