#pragma once

/// What operators need to put themselves on the tape. Not for users of layers; for who writes an operator:
///
///     Variable doubled(const Variable& x) {  // `twice` makes a tensor of a tensor
///       const Variable floats = x.as_float();
///       const auto backward = [](const Tensor& dy) { return std::vector<Tensor>{twice(dy)}; };
///       return detail::record("doubled", twice(floats.tensor()), {floats}, backward);
///     }

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"

namespace fq {

/// Gradients of an operator's inputs, in their order, from the gradient of its output. `dy` has the output's
/// shape and layout. An input that needs none may get an undefined tensor; the others have their input's
/// shape, any layout.
using Backward = std::function<std::vector<Tensor>(const Tensor& dy)>;

namespace detail {

/// How a value came about: what the tape keeps of it. The value itself is kept by whoever reads it, and for
/// backward by the closures that ask for it.
struct Gradient {
  std::string_view op;  ///< a literal; empty for leaves
  std::string path;     ///< of the module that called the operator
  Shape shape;
  Layout layout = Layout::row_major;
  std::vector<std::shared_ptr<Gradient>> inputs;  ///< null for those that need no gradient
  Backward backward;
  Tensor sum;  ///< leaves: of all backward passes
  bool freed = false;
};

/// What a Variable is a handle of: a value, and how it came about where a gradient is needed.
struct Node {
  Value value;
  bool leaf = true;
  std::shared_ptr<Gradient> gradient;  ///< null where none is needed
  std::mutex mutex;  ///< guards what is kept of the value in other forms, as long as it lives
  std::shared_ptr<Node> as_float;
  using GridKey = std::pair<const void*, std::uint64_t>;             // scale tensor, version of the value
  std::vector<std::pair<GridKey, std::shared_ptr<Node>>> quantized;  // one tensor, one rounding
};

/// Whether `other`, made of `x` before, can stand for what would be made of it now.
[[nodiscard]] bool reusable(const Node& other, bool with_gradient) noexcept;

/// Any input requires a gradient and this thread records.
[[nodiscard]] bool needs_grad(const std::vector<Variable>& inputs) noexcept;

/// The door out of every operator: makes the output's node, records `backward` when an input needs a
/// gradient, and reports to the trace. `op` must be a literal.
[[nodiscard]] Variable record(std::string_view op, Value value, std::vector<Variable> inputs,
                              Backward backward, Attributes attributes = {});

/// For a gradient of the shape and type of dy: dy itself where the backward pass is its only holder, else
/// new.
[[nodiscard]] Tensor gradient_like(const Tensor& dy);
/// dy where the mask is set, +0 elsewhere, written as `gradient_like` says; dy itself without a mask.
[[nodiscard]] Tensor masked_gradient(const Tensor& dy, const Tensor& mask);

/// A tensor kept for backward with the version it had; `get` throws ArgumentError when it was written to
/// since.
class Saved {
 public:
  Saved() = default;
  explicit Saved(Tensor tensor) : tensor_(std::move(tensor)), version_(tensor_.version()) {}
  [[nodiscard]] const Tensor& get() const;
  [[nodiscard]] bool defined() const noexcept { return tensor_.defined(); }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

/// Adds a gradient to a sum: a += b, into a's storage when no other handle shares it; `b` in any layout.
void accumulate(Tensor& a, const Tensor& b);

}  // namespace detail
}  // namespace fq
