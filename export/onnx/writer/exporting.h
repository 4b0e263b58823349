#pragma once

/// One export under way: what the forms of the operators share.

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "fakequant/export/detail/code_names.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/writer/graph_builder.h"
#include "fakequant/layers/model/detail/calls.h"
#include "fakequant/layers/quantizer/detail/early_grids.h"
#include "fakequant/layers/quantizer/tensor_quantizer.h"

namespace fq::detail {

/// A constant matrix of codes or floats can be asked for transposed.
enum class Form : unsigned char { as_is, transposed };

/// The operators that a model called, for batches of any size.
struct OpenCalls : Calls {
  std::vector<Shape> wider;  ///< the output's shape of each call for a batch of one more

  /// The sizes of call i's output; -1 where they follow the batch.
  [[nodiscard]] Shape open_shape(std::size_t i) const;
};

/// The calls for samples of that shape. Throws ArgumentError for a model that calls other operators for
/// another batch.
[[nodiscard]] OpenCalls record_open_calls(Module& model, const Shape& sample);

/// While it lives every quantizer of the model has one of its paths as its name: those that a user's own
/// module made have none of themselves, or one that others have too.
class PathNames {
 public:
  explicit PathNames(Module& model);
  ~PathNames();
  PathNames(const PathNames&) = delete;  // puts back what it changed
  PathNames& operator=(const PathNames&) = delete;

 private:
  std::vector<std::pair<TensorQuantizer*, std::string>> before_;
};

/// One export to ONNX: translates the recorded calls of a model into nodes of a graph.
class Exporting {
 public:
  Exporting(Module& model, const Shape& sample, const OnnxExportOptions& options);
  [[nodiscard]] OnnxModel run();
  /// Throws ArgumentError if ONNX has no form of an operator or of the grid of an activation.
  void check() const;

  /// The floats of a value; constants are added when first asked for.
  std::string floats(const Variable& value, Form form = Form::as_is);
  std::string input(const Call& call, std::size_t i, Form form = Form::as_is) {
    return floats(call.inputs.at(i), form);
  }
  /// The codes of a constant, null for floats and what is computed.
  [[nodiscard]] const QuantizedTensor* constant_codes(const Variable& value) const;
  /// What the parameter is called in the model; `otherwise` for tensors of other origin.
  [[nodiscard]] std::string name_of(const Variable& value, const std::string& otherwise) const;
  /// "conv1", or the operator where no module called it.
  [[nodiscard]] static std::string node_name(const Call& call) {
    return call.path.empty() ? call.op : call.path;
  }
  /// Adds the node of a call and gives its output to who reads it.
  void node(const Call& call, std::string op, std::vector<std::string> inputs,
            GraphBuilder::Attributes attributes = {});
  /// `floats` is the output of the call; puts it on its grid where it has one.
  void give(const Call& call, std::string floats);
  /// The same for the rows of an output [.., features] as a matrix.
  void give_rows(const Call& call, std::string matrix);
  /// The rows of an input that has codes, as a matrix on its grid.
  std::string rows(const Call& call, std::size_t i);
  /// Gives a ReLU's output where it is one of codes, or of rows. False where it is one of floats.
  [[nodiscard]] bool give_relu(const Call& call);
  [[nodiscard]] bool is_read(const Variable& value) const {
    return value.node() == calls_.output.node() || !early_.readers(value).empty();
  }
  /// Whether the value is integers of an input of the graph, moved or not: row numbers of tables and nothing
  /// else.
  [[nodiscard]] bool takes_ids(const Variable& value) const;
  /// Whether some reader puts the value on a grid of E4M3.
  [[nodiscard]] bool ends_in_e4m3(const Variable& value) const;
  [[nodiscard]] const Shape& open_shape(const Call& call) const { return open_shapes_.at(&call); }
  /// Throws ArgumentError when that quantizer is not one of the model's.
  [[nodiscard]] const TensorQuantizer& quantizer_at(const std::string& path) const;
  [[nodiscard]] const OnnxExportOptions& options() const noexcept { return options_; }
  [[nodiscard]] GraphBuilder& graph() noexcept { return graph_; }
  /// The number of samples of the graph's input, an i64 [1] that is made when first asked for.
  std::string batch();

  void quantize(const Call& call);
  /// Floats on the grid of a function that quantizes and dequantizes, a constant's codes computed here.
  std::string put_on_grid(const Call& call, const Variable& input, Grid grid);
  /// The same value under another variable.
  void alias(const Call& call);

 private:
  struct Value {
    std::string floats, transposed;        ///< names; empty until asked for
    std::string rows;                      ///< the floats as a matrix [rows, features], where they are one
    const Call* maker = nullptr;           ///< of the rows
    std::optional<QuantizedTensor> codes;  ///< of a constant
    const Grid* grid = nullptr;            ///< that `floats` are on
    std::string grid_codes;                ///< the name of their codes
    bool cut = false;                      ///< codes below 0 are 0
  };

  void check_model() const;
  /// Throws ArgumentError if ONNX has no form of the call's operator.
  static void check_form(const Call& call);
  /// Throws ArgumentError if ONNX has no node for the grid on which the call puts an activation.
  void check_grid(const Call& call) const;
  void emit(const Call& call);
  /// Names the input, or those that are parts of it, and makes floats of what they hold.
  void add_inputs();
  /// Throws ArgumentError unless the parts cover the network's input, in their order, and nothing reads it
  /// besides.
  void check_parts(const std::vector<const Call*>& parts) const;
  void add_part(const Call& part);
  void add_ends();
  [[nodiscard]] OnnxValueInfo end(std::string name, DType dtype, const Variable& value,
                                  const Shape& open) const;
  void name_codes();
  /// Whether all that reads the value, moved or not, takes it as row numbers of a table.
  [[nodiscard]] bool is_ids(const Variable& value) const;
  [[nodiscard]] bool is_constant(const Variable& value) const {
    return value.is_leaf() && value.node() != calls_.input.node();
  }
  [[nodiscard]] QuantizedTensor codes_of(const Call& call) const;
  /// Whether codes of activations are multiplied by it.
  [[nodiscard]] bool is_integer_factor(const Variable& weight) const;
  std::string add_constant(const Variable& value, Value& known, Form form);
  /// Puts the output of a call, which is `floats` so far, on a grid; `cut`: no code is below 0.
  void put(const Call& call, std::string floats, const Grid& grid, bool cut);
  void put_rows(const Call& call, const std::string& matrix, const Grid& grid, bool cut);
  /// The codes' name of a call's output: that of the quantizer that reads it, or one of their own.
  [[nodiscard]] std::string codes_name(const Call& call, const Grid& grid) const;
  std::string unrolled(const Call& maker, const std::string& matrix);

  Module& model_;
  OnnxExportOptions options_;
  PathNames names_;
  OpenCalls calls_;
  EarlyGrids early_;
  GraphBuilder graph_;
  std::unordered_map<const Node*, Value> values_;
  std::unordered_map<const Node*, std::string> parameters_;
  std::unordered_map<const Node*, const Call*> makers_;
  std::unordered_set<const Node*> id_parts_;  // of the input, that are integers in the graph
  std::unordered_map<const Call*, Shape> open_shapes_;
  std::unordered_map<const Call*, std::string> code_names_;  // of those that quantize activations
  std::unordered_map<std::string, TensorQuantizer*> quantizers_;
  std::string batch_;
};

/// Returns true if ONNX has a form of the operator.
[[nodiscard]] bool has_form(std::string_view op);
/// Adds the form of the call's operator, which `has_form`.
void emit_operator(Exporting& out, const Call& call);
/// Linear layers and convolutions.
void emit_product(Exporting& out, const Call& call);
/// Linear layers whose engine rounds the input as it runs.
void emit_dynamic_product(Exporting& out, const Call& call);
/// Functions of the references that a model calls itself.
void emit_fake_quant(Exporting& out, const Call& call);
void emit_tensor_quant(Exporting& out, const Call& call);
void emit_tensor_quant_scale(Exporting& out, const Call& call);

}  // namespace fq::detail
