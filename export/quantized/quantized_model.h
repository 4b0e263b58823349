#pragma once

/// Imports networks that another tool quantized, with the codes and scales of the file.
///
///     const QuantizedModel file = import_quantized_onnx(load_onnx("int8.onnx"));
///     std::shared_ptr<Graph> net = file.build();  // evaluate it, train it further, export it again
///
/// docs/import.md lists the supported files and the unsupported grids.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/export/onnx/import.h"

namespace fq {

/// The grid of one quantizer in a file.
struct FileGrid {
  std::string quantizer;  ///< path or alias of the quantizer: "conv1.input_quantizer"
  std::string origin;     ///< source in the file, for messages: "node 'conv1.q' (QuantizeLinear)"
  /// Step sizes of the grid, f32: one number, or a list with one per channel or block.
  Tensor scale = {};
  /// Codes of a weight as f32, in the shape of the parameter.
  Tensor codes = {};
  /// Factor of E4M3 block scales. 0 for other grids.
  float unit = 0;
};

/// Quantization of a network in a file.
struct FileQuantization {
  std::string config;  ///< JSON with a rule for each quantizer of the file; empty for a float file
  std::vector<FileGrid> grids;

  [[nodiscard]] bool empty() const noexcept { return config.empty(); }
  /// Sets the scales of the file in a model that was quantized with `config`. Throws ArgumentError that names
  /// quantizer and origin if two scales belong to one quantizer, if a quantizer gets no scale, or if codes or
  /// scales of a weight differ from the file.
  void set_grids(Module& model) const;
};

/// A float network whose weights are code * scale, and its quantization.
struct QuantizedModel {
  ImportedModel floats;
  FileQuantization quantization;

  /// Returns the quantized network, in training mode and on the CPU. Throws as `quantize` and `set_grids`.
  [[nodiscard]] std::shared_ptr<Graph> build() const;
};

}  // namespace fq
