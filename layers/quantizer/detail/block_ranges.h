#pragma once

/// Ranges of tensors as quantizers keep them.

#include <string>

#include "fakequant/core/error.h"
#include "fakequant/layers/quantizer/detail/block_view.h"

namespace fq::detail {

/// One range as rank 0, several as a list, in f32 on the host; a copy.
[[nodiscard]] Tensor flat_ranges(const Tensor& amax);
/// The same shape without a copy, where the ranges are.
[[nodiscard]] Tensor listed(const Tensor& amax);
/// The largest magnitudes of x, one a range of the view, on its device, in f32 and the shape of
/// `flat_ranges`. A NumericError names the quantizer for NaN and infinity: on a GPU when something is next
/// read back.
[[nodiscard]] Tensor ranges_of(const Tensor& x, const BlockView& view, const std::string& quantizer);
/// The same of each block, in the shape and layout that a QuantSpec of x takes.
[[nodiscard]] Tensor ranges_of(const Tensor& x, const Granularity& granularity, const std::string& quantizer);
/// What a NumericError says, with the quantizer's name.
[[noreturn]] void rethrow_named(const NumericError& error, const std::string& quantizer);

}  // namespace fq::detail
