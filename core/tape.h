#pragma once

/// Functions that operators use to record themselves on the tape. Users of layers do not need them. Example
/// of a custom operator:
///
///     Variable doubled(const Variable& x) {  // y = x + x
///       const Tensor value = x.tensor();
///       const auto twice = [](const Tensor& t) { return ops::scale(t, 2.0).tensor(); };
///       const auto backward = [twice](const Tensor& dy) { return std::vector<Tensor>{twice(dy)}; };
///       return detail::record("doubled", twice(value), {x.as_float()}, backward);
///     }
///
/// An operator reads its inputs, computes a value and passes both to `record`, together with a backward
/// function. It captures the inputs that backward needs as `Saved`, so that a write in between raises an
/// error instead of producing a wrong gradient. Most custom operators do not need `record`: a composition of
/// ops has a gradient automatically.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"

namespace fq {

/// Computes the gradients of an operator's inputs, in their order, from the gradient of its output. `dy` has
/// the output's shape and layout. Each gradient has its input's shape, in any layout. It may be undefined if
/// its input needs no gradient. The function is called at most once, with recording off, and then freed. It
/// must capture tensors, not the input variables: a variable keeps its quantized forms, and the reference
/// cycle would never be freed.
using Backward = std::function<std::vector<Tensor>(const Tensor& dy)>;

namespace detail {

struct Activation;

/// A gradient whose last steps are still to compute. An operator with a fused kernel leaves them to the
/// operator that reads the gradient next, which computes them as it loads the elements. In this order:
///
///     v * fl(scale.x / scale.w[c])   gradient of a weight, from a product of codes
///     bit ? v : +0                   mask of a quantizer or of a ReLU
///     v * f.slope(saved)             activation
struct PendingGradient {
  struct Scale {
    Tensor x, w;  ///< f32: one number, and one or one per index of the axis
    int axis;
  };

  Tensor values;
  std::optional<Scale> scale = {};
  Tensor mask = {};                                   ///< u1 in the layout of `values`; may be undefined
  std::shared_ptr<const Activation> activation = {};  ///< null without one
  Tensor saved = {};                                  ///< argument of the slope, in the layout of `values`

  PendingGradient() = default;
  PendingGradient(Tensor evaluated)  // NOLINT(google-explicit-constructor): a gradient without pending steps
      : values(std::move(evaluated)) {}

  /// Computes the pending steps, in place if no other handle shares the values. Returns the values.
  const Tensor& evaluate();
  /// Adds a step. Computes the steps that cannot stay pending before it.
  void add_mask(const Tensor& bits);
  void add_slope(std::shared_ptr<const Activation> f, Tensor argument);
};

/// Arguments of a fused backward function, which may move from `dy`.
struct BackwardCall {
  PendingGradient dy;
  /// Returns the sum of the gradients that other readers of an input have left so far, and removes the sum
  /// from the tape. The function must then add the sum to its own gradient of this input. Returns an
  /// undefined tensor if there is no sum, or if the sum has another dtype or layout than `like`.
  std::function<Tensor(std::size_t input, const Tensor& like)> take_sum;
};

/// A Backward that reads pending gradients, and may return them.
using FusedBackward = std::function<std::vector<PendingGradient>(BackwardCall& call)>;

/// Returns the gradient unchanged, with its pending steps.
[[nodiscard]] std::vector<PendingGradient> pass_gradient(BackwardCall& call);

/// Recomputes a value, bit for bit.
using Again = std::function<Value()>;

/// Row indices along the first axis of a tensor, in order; no value means all rows.
using Rows = std::optional<std::vector<std::int64_t>>;

/// Tape node: the operator, its inputs and its backward function. The tape does not keep the value. Readers
/// keep it, and so do the backward functions that captured it.
struct Gradient {
  std::string_view op;  ///< a string literal; empty for leaves
  std::string path;     ///< path of the module that called the operator
  /// Shape and layout of the value.
  Shape shape;
  Layout layout = Layout::row_major;
  std::vector<std::shared_ptr<Gradient>> inputs;  ///< null for inputs without a gradient
  /// Null for leaves and after the backward pass.
  FusedBackward backward;
  Rows reads;  ///< rows of the gradient that `backward` reads; the others may stay 0
  Tensor sum;  ///< leaves: sum over all backward passes
  /// Whether the backward pass has run and freed this node.
  bool freed = false;
};

class SharedFactors;

/// Node of a Variable: a value and, if it needs a gradient, its tape node.
struct Node {
  Value value;
  /// Whether the value was not made by an operator.
  bool leaf = true;
  std::shared_ptr<Gradient> gradient;  ///< null if no gradient is needed
  Again again;                         ///< recomputes the value; empty if the value must be kept
  bool of_codes = false;               ///< a product of codes, maybe moved (attention uses integer products)
  std::mutex mutex;                    ///< guards the cached forms of the value below
  /// Cached result of `Variable::as_float` for codes or sums.
  std::shared_ptr<Node> as_float;
  using GridKey = std::pair<const void*, std::uint64_t>;             // scale tensor, version of the value
  std::vector<std::pair<GridKey, std::shared_ptr<Node>>> quantized;  // one tensor, one rounding
  std::weak_ptr<SharedFactors> factors;  ///< of codes, for the backward passes of the products that read them
};

/// Whether `other`, derived from a value earlier, can be used again instead of a new result. It needs a
/// gradient if one is required, and its backward pass must not have run.
[[nodiscard]] bool reusable(const Node& other, bool with_gradient) noexcept;

/// Whether this thread records and any input requires a gradient. Otherwise an operator saves nothing.
[[nodiscard]] bool needs_grad(const std::vector<Variable>& inputs) noexcept;

/// Finishes an operator: creates the output's node, records `backward` if an input needs a gradient, and
/// reports to the trace. `op` must be a string literal, because only its address is stored. `attributes` are
/// the operator's settings in a trace.
[[nodiscard]] Variable record(std::string_view op, Value value, std::vector<Variable> inputs,
                              Backward backward, Attributes attributes = {});
/// Records a fused backward function. On devices without a launch queue it gets and leaves no pending steps.
[[nodiscard]] Variable record(std::string_view op, Value value, std::vector<Variable> inputs,
                              FusedBackward backward, Attributes attributes = {});

/// Runs the backward function of a node without freeing it. Returns the evaluated gradients of the inputs.
[[nodiscard]] std::vector<Tensor> input_gradients(const Gradient& node, const Tensor& dy);

/// Returns y with `again`, which recomputes it. Readers that need y in backward then keep `again` instead
/// (SavedFloats). Has no effect for values without a gradient, and on a GPU.
[[nodiscard]] Variable with_recompute(Variable y, Again again);
/// Returns the function that recomputes `x`; empty if there is none.
[[nodiscard]] Again recompute_function(const Variable& x);

/// Returns y, marked as a product of codes or as derived from one alone.
[[nodiscard]] Variable made_of_codes(Variable y);
/// Whether x is a product of codes, possibly moved.
[[nodiscard]] bool is_of_codes(const Variable& x) noexcept;

/// Returns a tensor for a gradient of the shape and type of dy: dy itself if the backward pass is its only
/// holder, else a new tensor. The contents are unspecified.
[[nodiscard]] Tensor gradient_buffer(const Tensor& dy);
/// Returns dy where the mask is set and +0 elsewhere, in the tensor of `gradient_buffer`; dy itself if there
/// is no mask.
[[nodiscard]] Tensor masked_gradient(const Tensor& dy, const Tensor& mask);

/// A tensor saved for backward, with its version. `get` throws ArgumentError that names both versions if the
/// tensor was written to since.
class Saved {
 public:
  Saved() = default;
  /// Saves the tensor and its current version.
  explicit Saved(Tensor tensor) : tensor_(std::move(tensor)), version_(tensor_.version()) {}
  /// Returns the saved tensor. Throws ArgumentError if it was written to since.
  [[nodiscard]] const Tensor& get() const;
  /// Whether a tensor is saved; otherwise `get` returns an undefined tensor.
  [[nodiscard]] bool defined() const noexcept { return tensor_.defined(); }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

/// Floats saved for backward. Saves the integer codes or sums if the floats can be recomputed from them, else
/// the floats as `Saved`.
class SavedFloats {
 public:
  /// Saves the float value of `x`, in any layout.
  explicit SavedFloats(const Variable& x);
  /// Returns the saved floats. Throws ArgumentError as `Saved::get` does.
  [[nodiscard]] Tensor get() const;

 private:
  Again again_;
  Saved tensor_;
};

/// Adds a gradient to a sum: a += b, in a's storage if no other handle shares it. `b` may have any layout.
/// 16-bit floats are added as f32 and rounded once.
void accumulate(Tensor& a, const Tensor& b);

}  // namespace detail
}  // namespace fq
