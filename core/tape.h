#pragma once

/// What operators need to put themselves on the tape. Not for users of layers; for who writes an operator.

#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"

namespace fq {

/// Gradients of an operator's inputs, in their order, from the gradient of its output. `dy` has the output's shape and
/// layout. An input that needs none may get an undefined tensor; the others have their input's shape, any layout.
using Backward = std::function<std::vector<Tensor>(const Tensor& dy)>;

namespace detail {

struct Node {
  Value value;
  bool requires_grad = false;
  Tensor grad;
  std::vector<Variable> inputs;
  Backward backward;
  std::string_view op;  // a literal; empty for leaves
  bool freed = false;
  std::mutex mutex;  // guards the two caches
  std::weak_ptr<Node> as_float;
  using GridKey = std::pair<const void*, std::uint64_t>;           // scale tensor, version of the value
  std::vector<std::pair<GridKey, std::weak_ptr<Node>>> quantized;  // one tensor, one rounding
};

/// Any input requires a gradient and this thread records.
[[nodiscard]] bool needs_grad(const std::vector<Variable>& inputs) noexcept;

/// The door out of every operator: makes the output's node, records `backward` when an input needs a gradient,
/// and reports to the trace. `op` must be a literal.
[[nodiscard]] Variable record(std::string_view op, Value value, std::vector<Variable> inputs, Backward backward,
                              Attributes attributes = {});

/// A tensor kept for backward with the version it had; `get` throws ArgumentError when it was written to since.
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

/// a += b, into a's storage when no other handle shares it; `b` in any layout.
void accumulate(Tensor& a, const Tensor& b);

}  // namespace detail
}  // namespace fq
