#pragma once

/// Quantized weights in files of safetensors, by ModelOpt's names and those of compressed-tensors.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/format.h"
#include "fakequant/export/safetensors/file.h"

namespace fq::detail {

/// A layer whose weight a file has as codes.
struct PackedLayer {
  std::string name;  ///< of the layer in the file: "model.layers.0.mlp.up_proj"
  Format format = IntFormat{};
  Tensor codes, values;    ///< f32, of the weight's shape; values are code * scale
  Tensor scale;            ///< f32: rank 0, [N], or [N, K / group]
  std::int64_t group = 0;  ///< columns that share a scale; 0 for rows
  /// Of scales that are numbers of 8 bits, (8,0), or (4,3) times `unit`.
  std::optional<NumBits> scale_bits = {};
  float unit = 0;  ///< 0: none

  /// Which codes share a scale.
  [[nodiscard]] Granularity granularity() const;
};

/// What a file has besides floats.
struct PackedFile {
  std::vector<PackedLayer> layers;
  std::map<std::string, Tensor> scales;  ///< of inputs and outputs, by their names: "conv1.input_scale"
  std::vector<std::string> hidden;       ///< tensors that say how others are packed
};

/// The packed layers of a file: those with a `.weight_scale`. `read` reads a tensor. Throws FileError naming
/// file and tensor: for inputs in NVFP4 of compressed-tensors, codes with zero points or in
/// another order, factors of inputs, types and shapes that are none of the two packages'.
[[nodiscard]] PackedFile packed_file(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                                     const std::function<Tensor(const std::string&)>& read);

}  // namespace fq::detail
