#pragma once

/// QuantizeLinear and DequantizeLinear of a file, in the words of our grids.

#include <functional>
#include <string>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/format.h"
#include "fakequant/export/onnx/reader/node_reader.h"

namespace fq::detail {

/// A grid as a node states it.
struct StoredGrid {
  Format format = IntFormat{};
  Tensor scale;            ///< f32: rank 0, a list along `axis`, or with `block` as many axes as the codes
  int axis = -1;           ///< counted as the file does; -1 for one scale
  std::int64_t block = 0;  ///< elements along the axis that share a scale; 0 for none
  int zero_point = 0;      ///< what a stored code is above ours
  DType type = DType::u8;  ///< of stored codes

  /// "node 'q' (QuantizeLinear)".
  std::string origin = {};
};

/// Finds a fixed value by its name; undefined where it is computed.
using FindConstant = std::function<Tensor(const std::string&)>;

/// The grid of such a node, whose codes are of `type` (undefined zero points are 0). Throws ArgumentError
/// naming the node: for scales that are computed or quantized themselves, zero points that are not those of
/// signed or of unsigned codes, and types that no format of ours has.
[[nodiscard]] StoredGrid stored_grid(const NodeReader& node, const FindConstant& constant, DType type);
/// Stored codes as ours, f32.
[[nodiscard]] Tensor codes_of(const Tensor& stored, const StoredGrid& grid);
/// Which codes share a scale. Throws ArgumentError naming the node where the scales do not fit the codes.
[[nodiscard]] Granularity granularity_of(const NodeReader& node, const Tensor& codes, const StoredGrid& grid);
/// code * scale. Throws as `granularity_of`.
[[nodiscard]] Tensor values_of(const NodeReader& node, const Tensor& codes, const StoredGrid& grid);

/// The codes of a grid after a Clip.
struct ClippedCodes {
  Format format;
  bool relu = false;  ///< signed codes without the negative ones
};

/// Throws ArgumentError naming the node: for codes of E4M3, bounds that are computed, and codes that no
/// number of bits has.
[[nodiscard]] ClippedCodes clipped_codes(const OnnxNode& clip, const FindConstant& constant,
                                         const StoredGrid& grid);

}  // namespace fq::detail
