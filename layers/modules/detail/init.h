#pragma once

/// Initial values of parameters.

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Uniform in [-1/sqrt(fan_in), 1/sqrt(fan_in)), as torch.nn.Linear and Conv start.
[[nodiscard]] Tensor init_uniform(Shape shape, std::int64_t fan_in);

}  // namespace fq::detail
