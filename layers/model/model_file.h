#pragma once

/// Model files: a network as JSON, read, checked and built.
///
///     const ModelSpec spec = ModelSpec::parse(R"({"nodes": [
///       {"type": "flatten"}, {"type": "linear", "options": {"out_features": 64}}, {"type": "relu"},
///       {"type": "linear", "options": {"out_features": "classes"}}]})");
///     std::shared_ptr<Graph> net = build_model(spec, {1, 28, 28}, 10);
///
/// A file has a name and nodes, `{"name": "net", "nodes": [..]}`, or is the list of nodes alone, or names a
/// built-in model, `{"model": "cnn", "options": {"widths": [16, 32, 32]}}`.
///
/// A node has a `type` (see `layer_types`), a `name` of letters, digits, '_' and '-' (by default its type and
/// place), `options`, and `inputs`: names of earlier nodes, or "input", the network's own; by default the
/// node before it. The last node is the output. The types "sequential" and "graph" have `nodes` in place of
/// `options`; the nodes of a "sequential" have no `inputs`, in a "graph" "input" is its own. Sizes that
/// follow from the input (`in_channels`, `in_features`, `channels`) may be left out; an output size may be
/// "classes". Comments are allowed. docs/models.md lists types and options.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/model/model_node.h"

namespace fq {

/// How `build_model` makes parameters, and what it refuses to.
struct BuildOptions {
  /// The seed of the parameters' first values: the same seed gives the same values.
  std::uint64_t seed = 0;
  /// Limit of the elements of all parameters together, and of any value in the network for one image.
  std::int64_t max_elements = std::int64_t{1} << 33;
  bool dense = false;  ///< whether the output may have axes behind the classes
};

/// A checked description of a network; a value, cheap to copy. Types, names, inputs and names of options are
/// right; the values of options are checked by `build_model`, which knows the input's shape.
class ModelSpec {
 public:
  /// From nodes. Throws an error with the place of the node for unknown types, inputs and names of options,
  /// and for names that are not allowed.
  ModelSpec(std::string name, ModelNodes nodes);
  /// From text. `file` names it in errors, which are then FileErrors, else ArgumentErrors: they name line,
  /// key and the nearest valid one.
  [[nodiscard]] static ModelSpec parse(std::string_view text, const std::string& file = {});
  /// A built-in model, or a model file ("./cnn" for one that is named as a built-in model). `options` (a JSON
  /// object) are those of a built-in model. Throws FileError for a file, ArgumentError naming the built-in
  /// models.
  [[nodiscard]] static ModelSpec load(const std::string& file_or_name, std::string_view options = {});
  /// cnn, encoder, gpt, mlp, resnet20 or vit: see layers/model/builtin_models.h for their options.
  [[nodiscard]] static ModelSpec builtin(std::string_view name, std::string_view options = {});

  /// The name in the file, or that of the built-in model.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// The nodes in order, each with a name. An empty list of inputs means the node before.
  [[nodiscard]] const ModelNodes& nodes() const noexcept { return *nodes_; }
  /// As JSON text, one node a line, built-in models as their nodes: `parse` of it gives an equal spec. For
  /// checkpoints.
  [[nodiscard]] std::string text() const;
  /// Same name and nodes; comments and layout apart.
  friend bool operator==(const ModelSpec& a, const ModelSpec& b);

 private:
  std::shared_ptr<const ModelNodes> nodes_;
  std::string name_;
};

/// Makes the modules of a spec for images (rows, token ids) of `sample_shape`, without the batch, running
/// each on `meta` as it is made to know the sizes of the next. With `classes` > 0 the output must be [N,
/// classes], or with `dense` [N, classes, ..]. The same seed gives the same parameters, in training mode and
/// on the CPU.
///
/// Throws FileError or ArgumentError with line and node for options that do not fit each other or the input,
/// and for a model past the limits, before its parameters are allocated.
[[nodiscard]] std::shared_ptr<Graph> build_model(const ModelSpec& spec, const Shape& sample_shape,
                                                 std::int64_t classes = 0, const BuildOptions& options = {});

}  // namespace fq
