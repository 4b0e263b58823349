#pragma once

/// Masks of padding in batches of sequences, so that ranges ignore padding.
///
///     const PositionMask mask(seen);  // [N, T], 0 for padding
///     const ScopedValue<const PositionMask*> scope(context().position_mask, &mask);
///     (void)model(x);  // observers and running ranges see no padding

#include <cstdint>
#include <vector>

#include "fakequant/core/context.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Positions of N * T that hold data. For use by one thread.
class PositionMask {
 public:
  /// `mask` is [N, T]: 0 for padding, another number for data. Throws ArgumentError for another shape.
  explicit PositionMask(const Tensor& mask);

  /// Returns x without padding, on its device, where x has the positions:
  ///
  ///     [N, T, ..] -> [1, n, ..]           [N * T, ..] -> [n, ..]
  ///     [N, .., T, ..] -> [1, .., n, ..]   where one axis alone has T elements, as in [N, heads, T, d]
  ///
  /// n is the number of positions with data. Other tensors are returned unchanged: [N, C], axes that are
  /// ambiguous, and positions along an axis in `kept`, whose indices have their own ranges.
  [[nodiscard]] Tensor remove_padding(const Tensor& x, const Axes& kept) const;
  /// How many tensors had the positions.
  [[nodiscard]] std::int64_t matches() const noexcept { return matches_; }

 private:
  [[nodiscard]] int position_axis(const Shape& shape) const;

  std::int64_t samples_, positions_;
  std::vector<std::int64_t> data_;  // positions with data, ascending, of 0 .. N * T - 1
  mutable std::int64_t matches_ = 0;
};

/// Returns x without padding where a mask is in force, for the ranges of a quantizer. Static blocks keep
/// their positions, so their ranges depend on padding too.
[[nodiscard]] Tensor seen_by_ranges(const Tensor& x, const QuantDescriptor& descriptor);

}  // namespace fq::detail
