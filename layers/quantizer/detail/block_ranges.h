#pragma once

/// Blocks as slices of a tensor, and the ranges of tensors as quantizers keep them.

#include <map>
#include <string>

#include "fakequant/core/descriptor.h"
#include "fakequant/core/error.h"
#include "fakequant/core/variable.h"

namespace fq::detail {

/// A tensor padded on the right with zeros to whole blocks and reshaped, so that each block is one index of
/// the kept axes. Blocks along the last axis alone give [blocks, length]; otherwise an axis of n elements in
/// blocks of b becomes two, ceil(n / b) and b, and the others stay.
class BlockView {
 public:
  /// An unchanged view of the tensor. Ranges lie along `kept`.
  BlockView(const Shape& shape, Axes kept);
  /// Blocks with the given lengths by axis, counted from the front. A length of -1, or one above the size of
  /// the axis, is the whole axis. Axes without a length have blocks of 1.
  BlockView(const Shape& shape, const std::map<int, std::int64_t>& lengths);
  /// Returns the view of a descriptor's blocks. Dynamic blocks give one range for the whole tensor.
  [[nodiscard]] static BlockView of(const QuantDescriptor& descriptor, const Shape& shape);

  /// Axes of the view, one range for each index of them.
  [[nodiscard]] const Axes& kept() const noexcept { return kept_; }
  /// Kept axes with their sizes, 1 for the others.
  [[nodiscard]] Shape range_shape() const;
  [[nodiscard]] bool is_last_axis() const noexcept { return last_axis_; }

  /// Returns the blocks of x, or x from its blocks, in row-major order. Any dtype of 8 bits and more. The
  /// result shares storage unless blocks are padded.
  [[nodiscard]] Tensor apply(const Tensor& x) const;
  [[nodiscard]] Tensor restore(const Tensor& y) const;
  /// Does the same and records it on the tape. Padding gets no gradient.
  [[nodiscard]] Variable apply(const Variable& x) const;
  [[nodiscard]] Variable restore(const Variable& y) const;

 private:
  Shape shape_, padded_, view_;
  Axes kept_;
  bool last_axis_ = false;
};

/// Returns a copy of ranges in f32 on the host: rank 0 for one range, a list for several.
[[nodiscard]] Tensor flat_ranges(const Tensor& amax);
/// Returns ranges in the shape of `flat_ranges` on their device, without a copy.
[[nodiscard]] Tensor listed(const Tensor& amax);
/// Returns the largest magnitudes of x for each range of the view, on its device, in f32 and the shape of
/// `flat_ranges`. Throws NumericError naming the quantizer for NaN and infinity. On a GPU the error appears
/// when data is next read back.
[[nodiscard]] Tensor compute_ranges(const Tensor& x, const BlockView& view, const std::string& quantizer);
/// Returns the largest magnitude of each block, in the shape and layout of a Grid of x.
[[nodiscard]] Tensor compute_ranges(const Tensor& x, const Granularity& granularity,
                                    const std::string& quantizer);
/// Throws a NumericError again, with the name of the quantizer.
[[noreturn]] void rethrow_named(const NumericError& error, const std::string& quantizer);

}  // namespace fq::detail
