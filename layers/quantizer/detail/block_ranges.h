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
  /// The tensor as it is, ranges along `kept`.
  BlockView(const Shape& shape, Axes kept);
  /// `lengths` by axes counted from the front; -1, and what is longer, is the whole axis. Axes without a
  /// length have blocks of 1.
  BlockView(const Shape& shape, const std::map<int, std::int64_t>& lengths);
  /// Of a descriptor's blocks; per tensor for dynamic ones, whose range is that of the whole tensor.
  [[nodiscard]] static BlockView of(const QuantDescriptor& descriptor, const Shape& shape);

  /// Axes of the view, one range for each index of them.
  [[nodiscard]] const Axes& kept() const noexcept { return kept_; }
  /// Kept axes with their sizes, 1 for the others.
  [[nodiscard]] Shape range_shape() const;
  [[nodiscard]] bool is_last_axis() const noexcept { return last_axis_; }

  /// Any dtype of 8 bits and more, row-major result; shares storage where nothing is padded.
  [[nodiscard]] Tensor apply(const Tensor& x) const;
  [[nodiscard]] Tensor restore(const Tensor& y) const;
  /// The same on the tape: what was padded gets no gradient.
  [[nodiscard]] Variable apply(const Variable& x) const;
  [[nodiscard]] Variable restore(const Variable& y) const;

 private:
  Shape shape_, padded_, view_;
  Axes kept_;
  bool last_axis_ = false;
};

/// One range as rank 0, several as a list, in f32 on the host; a copy.
[[nodiscard]] Tensor flat_ranges(const Tensor& amax);
/// The same shape without a copy, where the ranges are.
[[nodiscard]] Tensor listed(const Tensor& amax);
/// The largest magnitudes of x, one a range of the view, on its device, in f32 and the shape of
/// `flat_ranges`. A NumericError names the quantizer for NaN and infinity: on a GPU when something is next
/// read back.
[[nodiscard]] Tensor ranges_of(const Tensor& x, const BlockView& view, const std::string& quantizer);
/// The same of each block, in the shape and layout that a Grid of x takes.
[[nodiscard]] Tensor ranges_of(const Tensor& x, const Granularity& granularity, const std::string& quantizer);
/// What a NumericError says, with the quantizer's name.
[[noreturn]] void rethrow_named(const NumericError& error, const std::string& quantizer);

}  // namespace fq::detail
