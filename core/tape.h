#pragma once

/// What operators need to put themselves on the tape. Users of layers do not need it; it is for who writes an
/// operator:
///
///     Variable doubled(const Variable& x) {  // y = x + x
///       const Tensor value = x.tensor();
///       const auto twice = [](const Tensor& t) { return ops::scale(t, 2.0).tensor(); };
///       const auto backward = [twice](const Tensor& dy) { return std::vector<Tensor>{twice(dy)}; };
///       return detail::record("doubled", twice(value), {x.as_float()}, backward);
///     }
///
/// An operator reads its inputs, makes a value, and hands both to `record` with a function that passes a
/// gradient back. What backward needs of the inputs it captures as `Saved`, so that a write in between is an
/// error and not a wrong gradient. Most operators of one's own need none of this: a composition of ops has
/// its gradient by itself.

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

/// Gradients of an operator's inputs, in their order, from the gradient of its output. `dy` has the output's
/// shape and layout. An input that needs none may get an undefined tensor; the others have their input's
/// shape, in any layout. It is called once at most, with recording off, and freed then. It holds tensors, not
/// the variables of its inputs: those keep what they were rounded to, which would keep them for ever.
using Backward = std::function<std::vector<Tensor>(const Tensor& dy)>;

namespace detail {

/// Makes a value a second time, bit for bit.
using Again = std::function<Value()>;

/// Rows of a tensor along its first axis, in their order; nothing for all of them.
using Rows = std::optional<std::vector<std::int64_t>>;

/// How a value came about: what the tape keeps of it. The value itself is kept by whoever reads it, and for
/// backward by the closures that ask for it.
struct Gradient {
  std::string_view op;  ///< a literal; empty for leaves
  std::string path;     ///< of the module that called the operator
  /// Shape and layout of the value.
  Shape shape;
  Layout layout = Layout::row_major;
  std::vector<std::shared_ptr<Gradient>> inputs;  ///< null for those that need no gradient
  /// Null for leaves, and once it has run.
  Backward backward;
  Rows reads;  ///< what `backward` reads of the value's gradient: whoever gives one may leave 0 elsewhere
  Tensor sum;  ///< leaves: of all backward passes
  /// Whether it was passed backward: nothing of it is left then.
  bool freed = false;
};

/// What a Variable is a handle of: a value, and how it came about where a gradient is needed.
struct Node {
  Value value;
  /// Whether no operator made it.
  bool leaf = true;
  std::shared_ptr<Gradient> gradient;  ///< null where none is needed
  Again again;  ///< of what is smaller, or kept for backward anyway; empty where the value must be kept
  bool of_codes = false;  ///< a product of codes, maybe moved: attention passes it back as products of codes
  std::mutex mutex;       ///< guards what is kept of the value in other forms, as long as it lives
  /// What `Variable::as_float` made of codes or sums.
  std::shared_ptr<Node> as_float;
  using GridKey = std::pair<const void*, std::uint64_t>;             // scale tensor, version of the value
  std::vector<std::pair<GridKey, std::shared_ptr<Node>>> quantized;  // one tensor, one rounding
};

/// Whether `other`, which was made of a value before, can stand for what would be made of it now: it has a
/// gradient where one is wanted, and that was not passed backward yet.
[[nodiscard]] bool reusable(const Node& other, bool with_gradient) noexcept;

/// Whether any input requires a gradient and this thread records: otherwise an operator saves nothing.
[[nodiscard]] bool needs_grad(const std::vector<Variable>& inputs) noexcept;

/// The door out of every operator: it makes the output's node, records `backward` when an input needs a
/// gradient, and reports to the trace. `op` must be a literal, since it is kept by address. `attributes` are
/// what a trace tells of the operator besides its inputs.
[[nodiscard]] Variable record(std::string_view op, Value value, std::vector<Variable> inputs,
                              Backward backward, Attributes attributes = {});

/// The result of an operator, which `again` makes a second time: readers that need it in backward keep that
/// (SavedFloats). Nothing changes for values without a gradient, and on a GPU.
[[nodiscard]] Variable made_again_by(Variable y, Again again);
/// How `x` is made again; empty where it cannot be.
[[nodiscard]] Again again_of(const Variable& x);

/// y, which is a product of codes or was made of one alone.
[[nodiscard]] Variable made_of_codes(Variable y);
/// Whether x is a product of codes, maybe moved.
[[nodiscard]] bool is_of_codes(const Variable& x) noexcept;

/// A tensor to write a gradient of the shape and type of dy to: dy itself where the backward pass is its only
/// holder, else a new one. The contents are unspecified.
[[nodiscard]] Tensor gradient_like(const Tensor& dy);
/// dy where the mask is set and +0 elsewhere, written to what `gradient_like` gives; dy itself without a
/// mask.
[[nodiscard]] Tensor masked_gradient(const Tensor& dy, const Tensor& mask);

/// A tensor that is kept for backward, with the version that it had. `get` throws ArgumentError when it was
/// written to since, naming both versions.
class Saved {
 public:
  Saved() = default;
  /// Keeps the tensor, and the version that it has now.
  explicit Saved(Tensor tensor) : tensor_(std::move(tensor)), version_(tensor_.version()) {}
  /// The tensor as it was. Throws ArgumentError when it was written to since.
  [[nodiscard]] const Tensor& get() const;
  /// Whether a tensor is kept; `get` of an undefined one is undefined.
  [[nodiscard]] bool defined() const noexcept { return tensor_.defined(); }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

/// Floats that are kept for backward: by the codes that they were made of where that can be done again, such
/// as sums of a product that is read as floats, else as `Saved`.
class SavedFloats {
 public:
  /// Keeps the floats that `x` holds, in any layout.
  explicit SavedFloats(const Variable& x);
  /// The floats as they were. Throws ArgumentError as `Saved::get` does.
  [[nodiscard]] Tensor get() const;

 private:
  Again again_;
  Saved tensor_;
};

/// Adds a gradient to a sum: a += b, into a's storage when no other handle shares it. `b` may have any
/// layout; 16-bit floats are added as f32 and rounded once.
void accumulate(Tensor& a, const Tensor& b);

}  // namespace detail
}  // namespace fq
