#pragma once

/// Scales of few bits as codes; not a public header.

#include "fakequant/core/quantized.h"

namespace fq::detail {

/// Scales of that spec, in any order and shape, as what they are made of: f8_e4m3 c of scale = fl(c * unit),
/// or f8_e8m0 of a power of two. Throws ArgumentError where `scale_bits` is neither 4 nor 1.
[[nodiscard]] Tensor scale_codes(const Tensor& scales, const QuantSpec& spec);

}  // namespace fq::detail
