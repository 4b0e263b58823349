#pragma once

/// Checked sizes of pooling.

#include <string_view>

#include "fakequant/core/blocks/detail/pool_windows.h"
#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/pool.h"

namespace fq::detail {

/// A window along one axis of an image.
struct PoolAxis {
  std::int64_t size;   ///< input size
  std::int64_t reach;  ///< elements from the first of a window to the last, inclusive
  std::int64_t stride, before, after, positions;
};

/// Returns axis i of the images `x`, for options with one number per axis and a kernel that spans `reach`
/// elements. Throws ArgumentError as described in pool.h.
template <class Options>
[[nodiscard]] PoolAxis pool_axis(const Shape& x, const Options& o, std::size_t i, std::int64_t reach,
                                 std::string_view op) {
  const std::int64_t size = x[2 + i];
  PoolAxis a{size,
             reach,
             o.stride[i] == 0 ? o.kernel[i] : o.stride[i],
             o.padding[i],
             o.padding_end[i] < 0 ? o.padding[i] : o.padding_end[i],
             0};
  FQ_CHECK(o.kernel[i] >= 1 && a.stride >= 1, op, "kernel {} and stride {} must be 1 or more", o.kernel[i],
           o.stride[i]);
  FQ_CHECK(a.before >= 0 && std::max(a.before, a.after) < reach, op,
           "padding {} and {} is not between 0 and less than the kernel {}", a.before, a.after, reach);
  const std::int64_t padded = size + a.before + a.after;
  FQ_CHECK(size >= 1 && reach <= padded, op, "kernel {} is larger than the padded input {} of {}", reach,
           padded, to_string(x));
  const std::int64_t room = padded - reach;
  a.positions = room / a.stride + 1;
  const bool more = o.ceil_mode && room % a.stride != 0 && a.positions * a.stride < size + a.before;
  if (more) ++a.positions;
  FQ_CHECK((a.positions - 1) * a.stride - a.before < size, op,
           "padding {} behind {} leaves windows without a pixel", a.after, to_string(x));
  return a;
}

/// Returns the sizes for pooling an [N, C, H, W] input. Throws ArgumentError as described in pool.h.
[[nodiscard]] PoolSizes pool_sizes(const Shape& shape, const ops::Pool2d& options, std::string_view op);
[[nodiscard]] Shape pooled_shape(const PoolSizes& sizes);
[[nodiscard]] Attributes pool_attributes(const PoolSizes& sizes);

}  // namespace fq::detail
