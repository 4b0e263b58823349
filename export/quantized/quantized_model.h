#pragma once

/// Quantized files in: a network that was quantized elsewhere, with the codes and the scales of its file.
///
///     const QuantizedModel file = import_quantized_onnx(load_onnx("int8.onnx"));
///     std::shared_ptr<Graph> net = file.build();  // evaluate it, train it further, export it again
///
/// docs/import.md says which files are taken, and what a grid of ours cannot hold.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/export/onnx/import.h"

namespace fq {

/// What a file says of one quantizer.
struct FileGrid {
  std::string quantizer;  ///< its path, or an alias of it: "conv1.input_quantizer"
  std::string origin;     ///< what in the file has it, for messages: "node 'conv1.q' (QuantizeLinear)"
  /// The steps of the grid, f32: one, or a list, one for each channel or block.
  Tensor scale = {};
  /// Of a weight, in the shape of the parameter: the codes as f32.
  Tensor codes = {};
  /// Of blocks whose scales are numbers of E4M3: what these are multiplied by; 0 for any other grid.
  float unit = 0;
};

/// How a file quantizes a network.
struct FileQuantization {
  std::string config;  ///< as JSON, with a rule for each quantizer of the file; empty for a file of floats
  std::vector<FileGrid> grids;

  [[nodiscard]] bool empty() const noexcept { return config.empty(); }
  /// Gives the quantizers of a model that was quantized by `config` the file's scales. Throws ArgumentError
  /// naming quantizer and origin: where two scales of the file are for one quantizer, one is left without,
  /// and where codes or scales of a weight are not the file's.
  void set_grids(Module& model) const;
};

/// A float network whose weights are code * scale, and how it is quantized.
struct QuantizedModel {
  ImportedModel floats;
  FileQuantization quantization;

  /// The quantized network, in training mode and on the CPU. Throws as `quantize` and `set_grids`.
  [[nodiscard]] std::shared_ptr<Graph> build() const;
};

}  // namespace fq
