#pragma once

/// The door of 2-D pooling: checked sizes.

#include <string_view>

#include "fakequant/core/blocks/detail/pool_windows.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/pool.h"

namespace fq::detail {

/// Sizes of pooling an [N, C, H, W] input. Throws ArgumentError as said in pool.h.
[[nodiscard]] PoolSizes pool_sizes(const Shape& shape, const ops::Pool2d& options, std::string_view op);
[[nodiscard]] Shape pooled_shape(const PoolSizes& sizes);
[[nodiscard]] Attributes pool_attributes(const PoolSizes& sizes);

}  // namespace fq::detail
