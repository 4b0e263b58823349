#pragma once

/// Imports a float ONNX graph, so that a network trained with another framework can be calibrated, fine-tuned
/// and exported.
///
///     const ImportedModel imported = import_onnx(load_onnx("resnet.onnx"));
///     std::shared_ptr<Graph> net = imported.build();
///     fold_batch_norm(*net, {1, 3, 224, 224});
///
/// docs/import.md lists the supported operators and exporters.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/model/model_file.h"

namespace fq {

/// Options of an import, for settings that a file leaves open.
struct ImportOptions {
  /// Shape of one sample, without the batch, for each input with an open shape. Empty: the shape in the file.
  Shape sample_shape = {};
  std::string name = "imported";  ///< name of the model
  std::string output = {};  ///< output to import from a file with several outputs; empty for the only output
  /// Inputs that are the same for every sample, by name: one number for all elements (rank 0), or a tensor
  /// with the shape of one sample, with or without a batch of 1. They become constants of the network.
  std::map<std::string, Tensor> fixed_inputs = {};
  /// Shape of one sample by input name. Overrides `sample_shape`.
  std::map<std::string, Shape> input_shapes = {};
};

/// A model and its weights. A checkpoint contains spec and state.
struct ImportedModel {
  ModelSpec spec;
  Shape sample_shape, output_shape;  ///< of one sample, without the batch
  /// `parameters/NODE.PARAMETER` and `buffers/NODE.BUFFER`, f32, with the names of a checkpoint. Tensors may
  /// share storage with the file.
  StateDict state;
  /// Number of layers recognised in several ONNX nodes or in nodes of another kind: {"gelu", 2}, {"global
  /// pooling", 1}.
  std::vector<std::pair<std::string, std::int64_t>> recognised;

  /// Returns the network with these weights, in training mode and on the CPU. Each call creates a new
  /// network.
  [[nodiscard]] std::shared_ptr<Graph> build() const;
};

/// Builds a model from a float graph and one of its outputs. The graph has one data input [N, ..], or
/// several, and the other inputs are fixed. The batch may be symbolic or fixed. Several data inputs become
/// layers "input_part" of rows [N, K], in the order of the file. Dropout in training mode becomes a dropout
/// layer. Batch norms in training mode are rejected. Layers compute in f32. Integers and 16-bit floats have
/// the values of the file (docs/import.md).
///
/// The importer folds constant operators and sizes that the graph computes from its values. It recognises
/// chains of nodes that form a GELU, a SiLU, a hard swish or a layer norm. Means over pixels become global
/// pooling, and reshapes to rows become flatten. Nodes are named by module paths, "layer1_0_conv1", if the
/// names of nodes or weights contain them.
///
/// The file is treated as untrusted. Throws ArgumentError that names the node for attributes, shapes and
/// types that do not fit. One ArgumentError lists all unsupported nodes with their operators and known
/// workarounds. Throws if the parameters would have many more elements than the tensors in the file.
[[nodiscard]] ImportedModel import_onnx(const OnnxModel& model, const ImportOptions& options = {});

}  // namespace fq
