#pragma once

/// One ONNX node while it becomes layers.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/export/onnx/reader/element_types.h"
#include "fakequant/export/onnx/reader/model_builder.h"
#include "fakequant/export/onnx/reader/node_reader.h"

namespace fq::detail {

/// Thrown where an operator is supported, but not as this node uses it: "ReduceMean over the axes [1, 2]".
struct UnsupportedUse {
  std::string what;
};

/// How often several nodes, or nodes of another kind, became a layer.
using Recognised = std::map<std::string, std::int64_t>;

/// What all nodes of a graph share.
struct ImportContext {
  int opset = 0;
  std::int64_t batch = -1;  ///< of the file's input when it is fixed
  ModelBuilder model;
  ImportValue input;
  const NodeNames& names;
  const ElementTypes& types;
  Recognised recognised;
};

class OpImport : public NodeReader {
 public:
  OpImport(const OnnxNode& node, std::vector<ImportValue> inputs, ImportContext& context)
      : NodeReader(node), inputs_(std::move(inputs)), context_(context) {}

  [[nodiscard]] int opset() const noexcept { return context_.opset; }
  /// Whether a first size stands for the batch: that of the file, or of one made for one sample.
  [[nodiscard]] bool is_batch(std::int64_t size) const {
    return size == kSymbolicBatch || size == 1 || (size > 1 && size == context_.batch);
  }
  /// That of the file's input where it is fixed, else -1.
  [[nodiscard]] std::int64_t batch() const noexcept { return context_.batch; }
  [[nodiscard]] std::size_t input_count() const noexcept { return inputs_.size(); }
  [[nodiscard]] bool is_constant(std::size_t i) const { return has_input(i) && inputs_[i].is_constant(); }
  /// The element type of an input.
  [[nodiscard]] ElementType type(std::size_t i = 0) const {
    return has_input(i) ? context_.types.of(node().inputs[i]) : ElementType{};
  }
  /// The element type of the first output.
  [[nodiscard]] ElementType result_type() const { return context_.types.of(node().outputs.at(0)); }
  /// Returns an input as the output of a layer. A constant becomes a layer of the constant's shape.
  [[nodiscard]] const ImportValue& value(std::size_t i = 0) const;
  /// The same, or a constant as a layer of its own that gives it: [1, ..], to broadcast against a value of
  /// `rank` axes.
  [[nodiscard]] ImportValue operand(std::size_t i, std::size_t rank) const;
  /// A constant of all axes, [1, ..], as a layer that gives it for each sample.
  [[nodiscard]] ImportValue each(std::size_t i) const;
  /// A constant as a layer: [1, shape..], or for each sample [N, shape..].
  [[nodiscard]] ImportValue parameter(const Tensor& value, Shape shape, bool learned,
                                      bool repeat = false) const;
  /// Whether input `i` is a constant of one number.
  [[nodiscard]] bool is_number(std::size_t i) const {
    return is_constant(i) && inputs_[i].constant.numel() == 1;
  }
  /// The inputs' own.
  [[nodiscard]] const ImportValue& input(std::size_t i) const {
    check(i < inputs_.size(), "its input {} is missing", i);
    return inputs_[i];
  }
  /// A fixed input of any type.
  [[nodiscard]] const Tensor& constant(std::size_t i) const;
  /// Numbers of a layer, as f32, at least one.
  [[nodiscard]] Tensor weight(std::size_t i) const;
  /// The single number of a fixed input.
  [[nodiscard]] double scalar(std::size_t i) const;
  /// That of one that is whole.
  [[nodiscard]] std::int64_t whole_scalar(std::size_t i) const;
  /// Whole numbers of an attribute, or of the input that replaced it in later versions.
  [[nodiscard]] std::vector<std::int64_t> list(std::string_view key, std::size_t i) const;

  /// A layer of ours that reads `inputs`. What one node makes beside its main layer has a `suffix`.
  ImportValue layer(const std::string& type, NodeOptions options, const std::vector<ImportValue>& inputs,
                    const std::vector<LayerValue>& values = {}, const std::string& suffix = {}) const;
  /// A layer of one input without options.
  ImportValue layer(const std::string& type) const { return layer(type, {}, {value()}); }
  /// `x` in the shape `shape`; itself where it has that, rows by "flatten".
  ImportValue reshaped(const ImportValue& x, const Shape& shape, const std::string& suffix = "reshape") const;

  /// Another output than the first.
  void give(std::size_t output, ImportValue value) const { more_.emplace_back(output, std::move(value)); }
  [[nodiscard]] const std::vector<std::pair<std::size_t, ImportValue>>& more() const noexcept {
    return more_;
  }

  /// The layer that gives a value; null for the network's input. It stays where it is until the next one is
  /// added.
  [[nodiscard]] const ModelBuilder::Layer* made(const std::string& node) const {
    return context_.model.find(node);
  }
  void recognise(const std::string& what) const { ++context_.recognised[what]; }
  /// Throws UnsupportedUse.
  [[noreturn]] void unsupported(const std::string& how) const;

 private:
  void check_elements(std::size_t i) const;
  [[nodiscard]] ImportValue layer_of_constant(std::size_t i) const;

  std::vector<ImportValue> inputs_;
  ImportContext& context_;
  mutable std::vector<std::pair<std::size_t, ImportValue>> more_;
  mutable std::map<std::size_t, ImportValue> made_;  // of constants
};

/// What a builder of an operator gives: the node's first output.
using OpBuilder = ImportValue (*)(const OpImport&);
/// Null for operators that are not supported.
[[nodiscard]] OpBuilder find_op_builder(const OnnxNode& node);

/// The domain of the nodes that patterns put in the place of others.
inline constexpr std::string_view kPatternDomain = "fakequant";

}  // namespace fq::detail
