#pragma once

/// Model files: a network as JSON. Reads, checks and builds networks.
///
///     const ModelSpec spec = ModelSpec::parse(R"({"nodes": [
///       {"type": "flatten"}, {"type": "linear", "options": {"out_features": 64}}, {"type": "relu"},
///       {"type": "linear", "options": {"out_features": "classes"}}]})");
///     std::shared_ptr<Graph> net = build_model(spec, {1, 28, 28}, 10);
///
/// A file is one of three: a name and nodes, `{"name": "net", "nodes": [..]}`; a list of nodes; or a built-in
/// model, `{"model": "cnn", "options": {"widths": [16, 32, 32]}}`.
///
/// A node has a `type` (see `layer_types`), a `name` of letters, digits, '_' and '-' (default: its type and
/// position), `options`, and `inputs`. Inputs are names of earlier nodes, or "input" for the input of the
/// network. The default is the node before it. The last node is the output.
///
/// The types "sequential" and "graph" have `nodes` instead of `options`. The nodes of a "sequential" have no
/// `inputs`. In a "graph", "input" is the input of that graph. Sizes that follow from the input
/// (`in_channels`, `in_features`, `channels`) are optional. An output size may be "classes". Comments are
/// allowed. docs/models.md lists types and options.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/model/model_node.h"

namespace fq {

/// Options of `build_model`.
struct BuildOptions {
  /// Seed of the initial parameters. The same seed gives the same values.
  std::uint64_t seed = 0;
  /// Largest number of elements of all parameters together, and of any value in the network for one sample.
  std::int64_t max_elements = std::int64_t{1} << 33;
  bool dense = false;  ///< whether the output may have axes after the classes
};

/// A checked description of a network, cheap to copy. Types, names, inputs and option names are valid.
/// `build_model` checks the values of options, because it knows the input shape.
class ModelSpec {
 public:
  /// Constructs a model from nodes. Throws an error that names the node for unknown types, inputs and option
  /// names, and for names that are not allowed.
  ModelSpec(std::string name, ModelNodes nodes);
  /// Constructs a model from text. Errors name line, key and the nearest valid key. They are FileErrors that
  /// name `file`, or ArgumentErrors if `file` is empty.
  [[nodiscard]] static ModelSpec parse(std::string_view text, const std::string& file = {});
  /// Loads a built-in model, or a model file (write "./cnn" for a file with the name of a built-in model).
  /// `options` is a JSON object with options of a built-in model. Throws FileError for a file, and
  /// ArgumentError that names the built-in models.
  [[nodiscard]] static ModelSpec load(const std::string& file_or_name, std::string_view options = {});
  /// Returns a built-in model: cnn, encoder, gpt, mlp, resnet20 or vit. layers/model/builtin_models.h lists
  /// their options.
  [[nodiscard]] static ModelSpec builtin(std::string_view name, std::string_view options = {});

  /// Returns the name in the file, or the name of the built-in model.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Returns the nodes in order. Each has a name. An empty list of inputs means the node before.
  [[nodiscard]] const ModelNodes& nodes() const noexcept { return *nodes_; }
  /// Returns JSON text with one node per line, as stored in checkpoints. Built-in models are written as
  /// nodes. `parse` of the text gives an equal spec.
  [[nodiscard]] std::string text() const;
  /// Compares names and nodes. Comments and layout do not matter.
  friend bool operator==(const ModelSpec& a, const ModelSpec& b);

 private:
  std::shared_ptr<const ModelNodes> nodes_;
  std::string name_;
};

/// Creates the modules of a spec for samples of `sample_shape` (images, rows or token ids, without the
/// batch). It runs each module on `meta` to find the input sizes of the next one. With `classes` > 0 the
/// output must be [N, classes], or with `dense` [N, classes, ..]. The same seed gives the same parameters.
/// The model is in training mode and on the CPU.
///
/// Throws FileError or ArgumentError with line and node for options that do not fit each other or the input.
/// Throws for a model over the limits before it allocates the parameters.
[[nodiscard]] std::shared_ptr<Graph> build_model(const ModelSpec& spec, const Shape& sample_shape,
                                                 std::int64_t classes = 0, const BuildOptions& options = {});

}  // namespace fq
