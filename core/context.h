#pragma once

/// Context: the settings that apply to the current thread, and the scope class that changes them
/// temporarily.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace fq {

class Profiler;
class Recorder;
namespace detail {
class CallCache;
class PositionMask;
class Rerun;
class StandIns;
}  // namespace detail

/// Number type of the backward pass of integer products. For y[.., c] = s_x * s_w[c] * sum q_x*q_w the
/// gradients are
///
///     dX = dY' * q_w        dW[c] = (s_x / s_w[c]) * (dY'^T * q_x)        dY'[.., c] = dY[.., c] * s_w[c]
///
/// `bf16` rounds only dY' to bfloat16 (to nearest even): codes are exact in bfloat16 and sums are f32.
/// Processors without bf16 products multiply the same numbers as floats. `fp32` does not round dY'. Some
/// layers multiply dequantized weights (block scales of any float value, inputs not quantized). Their
/// forward product is in floats. In backward, `bf16` then rounds dY and both factors, on processors with
/// bf16 products.
enum class BackwardType : unsigned char { bf16, fp32 };

/// Random stream of a thread. Element e of the op-th random operator in a scope is a function of (seed,
/// step, op, e) only.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  ///< training step, below 2^63
  std::uint32_t op = 0;    ///< number of random operators so far in this step
};

/// Settings of one thread. The result of an operator depends only on its arguments and this context.
struct Context {
  bool records = true;                          ///< operators are recorded on the tape (NoGrad)
  BackwardType backward = BackwardType::bf16;   ///< for recorded products (BackwardScope)
  RandomStream random;                          ///< initially seed 0, step 0 (RandomScope)
  Recorder* recorder = nullptr;                 ///< receives the operators (RecordScope)
  Profiler* profiler = nullptr;                 ///< receives the time of each work item (ProfilerScope)
  std::string path;                             ///< path of the innermost module: "stage1.conv2" (PathScope)
  std::optional<bool> training;                 ///< overrides the training mode of each module
  const detail::StandIns* stand_ins = nullptr;  ///< temporary values that replace leaf values
  detail::Rerun* rerun = nullptr;               ///< of the checkpointed block that is running
  const detail::PositionMask* position_mask = nullptr;  ///< padding, excluded from ranges
  bool quantizes_weight = false;            ///< whether a quantizer reads a weight, not an activation
  detail::CallCache* call_cache = nullptr;  ///< cached outputs of modules that run again
};
/// Returns the context of this thread. Read it directly; change it with the scopes named above.
[[nodiscard]] inline Context& context() noexcept {
  thread_local Context own;
  return own;
}

/// Assigns a value for the lifetime of this object and restores the previous value afterwards. Scopes nest.
/// They cannot be moved to another scope or thread.
///
///     const ScopedValue quiet(context().recorder, static_cast<Recorder*>(nullptr));
template <class T>
class ScopedValue {
 public:
  ScopedValue(T& place, T value) : place_(place), previous_(std::exchange(place, std::move(value))) {}
  ~ScopedValue() { place_ = std::move(previous_); }
  ScopedValue(const ScopedValue&) = delete;  // tied to its block
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  T& place_;
  T previous_;
};

/// Returns the number type of the backward pass of products that this thread records.
[[nodiscard]] inline BackwardType backward_type() noexcept { return context().backward; }

/// Sets `backward_type` for the lifetime of this object. A product keeps the type that was set when it was
/// recorded.
class BackwardScope : public ScopedValue<BackwardType> {
 public:
  explicit BackwardScope(BackwardType type) : ScopedValue(context().backward, type) {}
};

}  // namespace fq
