#pragma once

/// ONNX in: a float graph becomes a model of ours, so that a network trained elsewhere can be calibrated,
/// fine-tuned and exported.
///
///     const ImportedModel imported = import_onnx(load_onnx("resnet.onnx"));
///     std::shared_ptr<Graph> net = imported.build();
///     fold_batch_norm(*net, {1, 3, 224, 224});
///
/// docs/import.md says which operators and exporters are known.

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

/// What a file may leave open.
struct ImportOptions {
  /// Shape of one sample, without the batch, of each input that leaves its shape open; empty: as the file
  /// says.
  Shape sample_shape = {};
  std::string name = "imported";  ///< of the model
  std::string output = {};        ///< the one to train, of a file with several; empty where there is one
  /// Inputs that are the same for every sample, by name: one number for all elements (rank 0), or a tensor of
  /// the shape of one sample, with a batch of 1 or without. They become constants of the network.
  std::map<std::string, Tensor> fixed_inputs = {};
  /// Shapes of one sample by the name of the input. They override `sample_shape`.
  std::map<std::string, Shape> input_shapes = {};
};

/// A model and its weights. The spec and state together are what a checkpoint holds.
struct ImportedModel {
  ModelSpec spec;
  Shape sample_shape, output_shape;  ///< of one sample, without the batch
  /// `parameters/NODE.PARAMETER` and `buffers/NODE.BUFFER`, f32, as a checkpoint has them. Tensors
  /// may share storage with the file's.
  StateDict state;
  /// What several ONNX nodes together, or nodes of another kind, became: {"gelu", 2}, {"global pooling", 1}.
  std::vector<std::pair<std::string, std::int64_t>> recognised;

  /// The network with these weights, in training mode and on the CPU. Each call makes a new one.
  [[nodiscard]] std::shared_ptr<Graph> build() const;
};

/// Builds a model from a float graph of one input [N, ..], or several, the others fixed, and one of its
/// outputs, with any batch, symbolic or fixed; several are layers "input_part" of rows [N, K], in the order
/// of the file; dropout in training mode is a layer of that name, batch norms in training mode are rejected.
/// Layers compute in f32; whole numbers and 16-bit floats have the file's values (docs/import.md).
///
/// Operators of fixed values are computed, and so are the sizes that a graph takes from its values; chains of
/// nodes that make up a GELU, a SiLU, a hard swish or a layer norm are found, means over pixels become global
/// pooling and reshapes to rows flattening. Nodes are named by the paths of the modules that they came from,
/// "layer1_0_conv1", as far as the file tells them by names of nodes or weights.
///
/// The model is checked as a file from anywhere. Throws ArgumentError naming the node for attributes, shapes
/// and types that do not fit; one that lists all nodes that are not supported with their operators and, where
/// there is one, a way round; and one when the parameters would have many more elements than the tensors in
/// the file.
[[nodiscard]] ImportedModel import_onnx(const OnnxModel& model, const ImportOptions& options = {});

}  // namespace fq
