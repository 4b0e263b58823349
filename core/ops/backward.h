#pragma once

/// In which numbers products of codes are passed backward.

#include "fakequant/core/context.h"

namespace fq {

/// Of y[.., c] = s_x * s_w[c] * sum q_x*q_w the gradients are
///   dX = dY' * q_w and dW[c] = (s_x / s_w[c]) * (dY'^T * q_x), dY'[.., c] = dY[.., c] * s_w[c].
/// `bf16` rounds dY' to bfloat16, to nearest even, and nothing else: codes are bfloat16 numbers, sums are
/// f32. Processors without bf16 products multiply the same numbers as floats. `fp32` does not round dY'.
/// Where codes are multiplied as the floats that they stand for (weights in blocks with scales of any float,
/// by inputs that are not quantized), the forward product is one of floats; backward, on processors with bf16
/// products, `bf16` rounds dY and both factors.
enum class BackwardType : unsigned char { bf16, fp32 };

/// Of products recorded on this thread; bf16 at first.
[[nodiscard]] inline BackwardType backward_type() noexcept { return context().backward; }

/// Sets it while it lives.
class BackwardScope : public ScopedValue<BackwardType> {
 public:
  explicit BackwardScope(BackwardType type) : ScopedValue(context().backward, type) {}
};

}  // namespace fq
