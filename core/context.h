#pragma once

/// Context: what is in force on a thread, and the one way to change it for a while.

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

/// In which numbers products of codes are passed backward. For y[.., c] = s_x * s_w[c] * sum q_x*q_w the
/// gradients are
///
///     dX = dY' * q_w        dW[c] = (s_x / s_w[c]) * (dY'^T * q_x)        dY'[.., c] = dY[.., c] * s_w[c]
///
/// `bf16` rounds dY' to bfloat16, to nearest even, and nothing else: codes are bfloat16 numbers, sums are
/// f32. Processors without bf16 products multiply the same numbers as floats. `fp32` does not round dY'.
/// Where codes are multiplied as the floats that they stand for (weights in blocks with scales of any float,
/// by inputs that are not quantized), the forward product is one of floats; backward, on processors with bf16
/// products, `bf16` rounds dY and both factors.
enum class BackwardType : unsigned char { bf16, fp32 };

/// Where random operators of a thread draw from: element e of the op-th of them since the scope began is a
/// function of (seed, step, op, e), whatever ran before.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  ///< of training, below 2^63
  std::uint32_t op = 0;    ///< random operators so far in this step
};

/// Each thread has its own. Nothing else decides what an operator does but its arguments.
struct Context {
  bool records = true;                          ///< operators go on the tape (NoGrad)
  BackwardType backward = BackwardType::bf16;   ///< of products that are recorded (BackwardScope)
  RandomStream random;                          ///< seed 0, step 0 at first (RandomScope)
  Recorder* recorder = nullptr;                 ///< what operators report to (RecordScope)
  Profiler* profiler = nullptr;                 ///< what work reports its time to (ProfilerScope)
  std::string path;                             ///< of the innermost module: "stage1.conv2" (PathScope)
  std::optional<bool> training;                 ///< the mode of all modules, in place of each one's own
  const detail::StandIns* stand_ins = nullptr;  ///< values that leaves have here, in place of their own
  detail::Rerun* rerun = nullptr;               ///< of the checkpointed block that runs
  const detail::PositionMask* position_mask = nullptr;  ///< padding that ranges leave out
  bool quantizes_weight = false;            ///< whether a quantizer reads a weight, not an activation
  detail::CallCache* call_cache = nullptr;  ///< outputs of modules that are called again
};
/// The context of this thread, to read; the scopes named above change it.
[[nodiscard]] inline Context& context() noexcept {
  thread_local Context own;
  return own;
}

/// Puts a value in a place while it lives, and what was there before back. Scopes nest: they are not handed
/// on, nor to another thread.
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

/// The numbers in which products that this thread records are passed backward.
[[nodiscard]] inline BackwardType backward_type() noexcept { return context().backward; }

/// Sets `backward_type` while it lives. A product keeps the type in force when it was recorded.
class BackwardScope : public ScopedValue<BackwardType> {
 public:
  explicit BackwardScope(BackwardType type) : ScopedValue(context().backward, type) {}
};

}  // namespace fq
