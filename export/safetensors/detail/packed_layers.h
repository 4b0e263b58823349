#pragma once

/// Quantized weights in safetensors files, with the names of ModelOpt and compressed-tensors.

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

/// A layer with a quantized weight in the file.
struct PackedLayer {
  std::string name;  ///< name of the layer in the file: "model.layers.0.mlp.up_proj"
  Format format = IntFormat{};
  Tensor codes, values;    ///< f32 in the weight's shape; values are code * scale
  Tensor scale;            ///< f32: rank 0, [N], or [N, K / group]
  std::int64_t group = 0;  ///< columns that share a scale; 0: each row
  /// Format of 8-bit scales: (8,0), or (4,3) times `unit`.
  std::optional<NumBits> scale_bits = {};
  float unit = 0;  ///< 0: none

  /// Returns the granularity of the scales.
  [[nodiscard]] Granularity granularity() const;
};

/// Quantization data of a file.
struct PackedFile {
  std::vector<PackedLayer> layers;
  std::map<std::string, Tensor> scales;  ///< scales of inputs and outputs by name: "conv1.input_scale"
  std::vector<std::string> hidden;       ///< tensors that describe how other tensors are packed
};

/// Returns the packed layers of a file: the layers with a `.weight_scale`. `read` reads a tensor. Throws
/// FileError that names file and tensor for NVFP4 inputs of compressed-tensors, codes with zero points or in
/// another order, factors of inputs, and unknown types and shapes.
[[nodiscard]] PackedFile packed_file(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                                     const std::function<Tensor(const std::string&)>& read);

}  // namespace fq::detail
