#pragma once

/// A Clip of codes between QuantizeLinear and DequantizeLinear: bits that are not all of the type's, and a
/// ReLU where it begins with the code of 0.

#include "fakequant/export/onnx/reader/quantized/stored_grid.h"

namespace fq::detail {

/// What a Clip leaves of a grid's codes.
struct ClippedCodes {
  Format format;
  bool relu = false;  ///< signed codes without the negative ones
};

/// Throws ArgumentError naming the node: for codes of E4M3, bounds that are computed, and codes that no
/// number of bits has.
[[nodiscard]] ClippedCodes clipped_codes(const OnnxNode& clip, const FindConstant& constant,
                                         const StoredGrid& grid);

}  // namespace fq::detail
