#pragma once

/// One ONNX node while it becomes layers.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/export/onnx/reader/model_builder.h"
#include "fakequant/export/onnx/reader/node_names.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/onnx/reader/value.h"

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
  const NodeNames& names;
  Recognised recognised;
};

class OpImport : public NodeReader {
 public:
  OpImport(const OnnxNode& node, std::vector<ImportValue> inputs, ImportContext& context)
      : NodeReader(node), inputs_(std::move(inputs)), context_(context) {}

  [[nodiscard]] int opset() const noexcept { return context_.opset; }
  /// Whether a first size stands for the batch: that of the file, or of one made for one sample.
  [[nodiscard]] bool is_batch(std::int64_t size) const {
    return size == kImportBatch || size == 1 || (size > 1 && size == context_.batch);
  }
  [[nodiscard]] std::size_t input_count() const noexcept { return inputs_.size(); }
  [[nodiscard]] bool is_constant(std::size_t i) const { return has_input(i) && inputs_[i].is_constant(); }
  /// An input that depends on the network's own.
  [[nodiscard]] const ImportValue& value(std::size_t i = 0) const;
  /// A fixed input of any type.
  [[nodiscard]] const Tensor& constant(std::size_t i) const;
  /// Numbers of a layer, as f32, at least one.
  [[nodiscard]] Tensor weight(std::size_t i) const;
  /// The single number of a fixed input.
  [[nodiscard]] double scalar(std::size_t i) const;
  /// Whole numbers of an attribute, or of the input that replaced it in later versions.
  [[nodiscard]] std::vector<std::int64_t> list(std::string_view key, std::size_t i) const;

  /// A layer of ours that reads `inputs`. What one node makes beside its main layer has a `suffix`.
  ImportValue layer(const std::string& type, nlohmann::ordered_json options,
                    const std::vector<ImportValue>& inputs, const std::vector<LayerValue>& values = {},
                    const std::string& suffix = {}) const;
  /// A layer of one input without options.
  ImportValue layer(const std::string& type) const { return layer(type, {}, {value()}); }
  /// `x` in the shape `shape`, batch first; itself where it has that, rows by "flatten".
  ImportValue reshaped(const ImportValue& x, const Shape& shape, const std::string& suffix = "reshape") const;

  void recognise(const std::string& what) const { ++context_.recognised[what]; }
  /// Throws UnsupportedUse.
  [[noreturn]] void unsupported(const std::string& how) const;

 private:
  std::vector<ImportValue> inputs_;
  ImportContext& context_;
};

/// What a builder of an operator gives: the node's first output.
using OpBuilder = ImportValue (*)(const OpImport&);
/// Null for operators that are not supported.
[[nodiscard]] OpBuilder find_op_builder(const OnnxNode& node);

/// The domain of the nodes that patterns put in the place of others.
inline constexpr std::string_view kPatternDomain = "fakequant";

}  // namespace fq::detail
