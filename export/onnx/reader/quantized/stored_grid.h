#pragma once

/// Converts QuantizeLinear and DequantizeLinear to grids.

#include <functional>
#include <string>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/format.h"
#include "fakequant/export/onnx/reader/node_reader.h"

namespace fq::detail {

/// A grid as a node defines it.
struct StoredGrid {
  Format format = IntFormat{};
  Tensor scale;            ///< f32: rank 0, a list along `axis`, or with `block` the rank of the codes
  int axis = -1;           ///< axis in the file; -1 for one scale
  std::int64_t block = 0;  ///< elements along the axis that share a scale; 0 for none
  int zero_point = 0;      ///< stored code minus code
  DType type = DType::u8;  ///< of stored codes

  /// "node 'q' (QuantizeLinear)".
  std::string origin = {};
};

/// Finds a constant by name. Returns an undefined tensor for computed values.
using FindConstant = std::function<Tensor(const std::string&)>;

/// Returns the grid of a QuantizeLinear or DequantizeLinear node with stored codes of `type` (a missing zero
/// point is 0). Throws ArgumentError that names the node for computed or quantized scales, zero points that
/// fit neither signed nor unsigned codes, and types without a format.
[[nodiscard]] StoredGrid stored_grid(const NodeReader& node, const FindConstant& constant, DType type);
/// Converts stored codes to codes, f32.
[[nodiscard]] Tensor subtract_zero_point(const Tensor& stored, const StoredGrid& grid);
/// Returns the granularity of the scales. Throws ArgumentError that names the node if the scales do not fit
/// the codes.
[[nodiscard]] Granularity scale_granularity(const NodeReader& node, const Tensor& codes,
                                            const StoredGrid& grid);
/// Returns code * scale. Throws as `scale_granularity`.
[[nodiscard]] Tensor dequantize_codes(const NodeReader& node, const Tensor& codes, const StoredGrid& grid);

/// The codes of a grid after a Clip.
struct ClippedCodes {
  Format format;
  bool relu = false;  ///< signed codes without the negative ones
};

/// Returns the codes after a Clip. Throws ArgumentError that names the node for E4M3 codes, computed bounds,
/// and bounds that match no number of bits.
[[nodiscard]] ClippedCodes clipped_codes(const OnnxNode& clip, const FindConstant& constant,
                                         const StoredGrid& grid);

}  // namespace fq::detail
