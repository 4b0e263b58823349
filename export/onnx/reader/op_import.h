#pragma once

/// Conversion of one ONNX node to layers.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/export/onnx/reader/element_types.h"
#include "fakequant/export/onnx/reader/model_builder.h"
#include "fakequant/export/onnx/reader/node_reader.h"

namespace fq::detail {

/// Error for a supported operator in an unsupported use: "ReduceMean over the axes [1, 2]".
struct UnsupportedUse {
  std::string what;
};

/// Counts layers that were recognised in several nodes or in nodes of another kind.
using Recognised = std::map<std::string, std::int64_t>;

/// State that all nodes of a graph share.
struct ImportContext {
  int opset = 0;
  std::int64_t batch = -1;  ///< batch of the file's input if it is fixed, else -1
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
  /// Whether a first size is the batch: the batch of the file, or 1.
  [[nodiscard]] bool is_batch(std::int64_t size) const {
    return size == kSymbolicBatch || size == 1 || (size > 1 && size == context_.batch);
  }
  /// Returns the fixed batch of the file's input, or -1.
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
  /// Returns an input as the output of a layer. A constant becomes a layer with the shape [1, ..] that
  /// broadcasts against a value of `rank` axes.
  [[nodiscard]] ImportValue operand(std::size_t i, std::size_t rank) const;
  /// Returns a constant with all axes, [1, ..], as a layer that repeats it for each sample.
  [[nodiscard]] ImportValue each(std::size_t i) const;
  /// Returns a constant as a layer: [1, shape..], or with `repeat` [N, shape..].
  [[nodiscard]] ImportValue parameter(const Tensor& value, Shape shape, bool learned,
                                      bool repeat = false) const;
  /// Whether input `i` is a constant with one element.
  [[nodiscard]] bool is_number(std::size_t i) const {
    return is_constant(i) && inputs_[i].constant.numel() == 1;
  }
  /// Returns an input, which may be a constant.
  [[nodiscard]] const ImportValue& input(std::size_t i) const {
    check(i < inputs_.size(), "its input {} is missing", i);
    return inputs_[i];
  }
  /// Returns a constant input of any type.
  [[nodiscard]] const Tensor& constant(std::size_t i) const;
  /// Returns the constant of a layer as f32. It has at least one element.
  [[nodiscard]] Tensor weight(std::size_t i) const;
  /// Returns the single number of a constant input.
  [[nodiscard]] double scalar(std::size_t i) const;
  /// Returns the single integer of a constant input.
  [[nodiscard]] std::int64_t whole_scalar(std::size_t i) const;
  /// Returns the integers of an attribute, or of the input that replaced it in later opsets.
  [[nodiscard]] std::vector<std::int64_t> list(std::string_view key, std::size_t i) const;

  /// Adds a layer that reads `inputs`. Additional layers of a node have a `suffix`.
  ImportValue layer(const std::string& type, NodeOptions options, const std::vector<ImportValue>& inputs,
                    const std::vector<LayerValue>& values = {}, const std::string& suffix = {}) const;
  /// Adds a layer with one input and no options.
  ImportValue layer(const std::string& type) const { return layer(type, {}, {value()}); }
  /// Returns `x` reshaped to `shape`. Returns `x` if the shape is the same, and uses "flatten" for rows.
  ImportValue reshaped(const ImportValue& x, const Shape& shape, const std::string& suffix = "reshape") const;

  /// Sets another output than the first.
  void give(std::size_t output, ImportValue value) const { more_.emplace_back(output, std::move(value)); }
  [[nodiscard]] const std::vector<std::pair<std::size_t, ImportValue>>& more() const noexcept {
    return more_;
  }

  /// Returns the layer that computes a value, or null for the network's input. The pointer is valid until the
  /// next layer is added.
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
  mutable std::map<std::size_t, ImportValue> made_;  // layers of constants
};

/// Builds the layers of an operator and returns the node's first output.
using OpBuilder = ImportValue (*)(const OpImport&);
/// Returns null for unsupported operators.
[[nodiscard]] OpBuilder find_op_builder(const OnnxNode& node);

/// Domain of the nodes that patterns insert.
inline constexpr std::string_view kPatternDomain = "fakequant";

}  // namespace fq::detail
