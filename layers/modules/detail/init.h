#pragma once

/// Initial values of parameters.

#include <cmath>
#include <utility>

#include "fakequant/core/random.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Returns uniform values in [-1/sqrt(fan_in), 1/sqrt(fan_in)), the initial values of torch.nn.Linear and
/// Conv.
[[nodiscard]] inline Tensor init_uniform(Shape shape, std::int64_t fan_in) {
  constexpr std::uint64_t parameters = std::uint64_t{1} << 62;  // apart from the streams of training steps
  Tensor out = Tensor::empty(std::move(shape));
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in));
  RandomStream& stream = random_stream();
  fill_uniform(out, -bound, bound, stream.seed, parameters | stream.op++);
  return out;
}

}  // namespace fq::detail
