#pragma once

/// State of one export, shared by the forms of operators.

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

/// Layout of a constant matrix.
enum class Form : unsigned char { as_is, transposed };

/// The operator calls of a model, for any batch size.
struct OpenCalls : Calls {
  std::vector<Shape> wider;  ///< output shape of each call for a batch with one more sample

  /// Returns the output sizes of call i. -1 for sizes that depend on the batch.
  [[nodiscard]] Shape open_shape(std::size_t i) const;
};

/// Records the calls for a sample shape. Throws ArgumentError if the model calls other operators for another
/// batch.
[[nodiscard]] OpenCalls record_open_calls(Module& model, const Shape& sample);

/// Gives every quantizer of the model one of its paths as name while it lives. Quantizers of user modules may
/// have no name, or share a name.
class PathNames {
 public:
  explicit PathNames(Module& model);
  ~PathNames();
  PathNames(const PathNames&) = delete;  // restores the names
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

  /// Returns the name of a value as floats. Adds a constant on first use.
  std::string floats(const Variable& value, Form form = Form::as_is);
  std::string input(const Call& call, std::size_t i, Form form = Form::as_is) {
    return floats(call.inputs.at(i), form);
  }
  /// Returns the codes of a constant. Null for floats and computed values.
  [[nodiscard]] const QuantizedTensor* constant_codes(const Variable& value) const;
  /// Returns the name of a parameter in the model, or `otherwise` for other tensors.
  [[nodiscard]] std::string parameter_name(const Variable& value, const std::string& otherwise) const;
  /// Returns the module path, "conv1", or the operator if no module called it.
  [[nodiscard]] static std::string node_name(const Call& call) {
    return call.path.empty() ? call.op : call.path;
  }
  /// Adds the node of a call and passes its output to the readers.
  void node(const Call& call, std::string op, std::vector<std::string> inputs,
            GraphBuilder::Attributes attributes = {});
  /// Passes on `floats`, the output of the call. Quantizes it to its grid if it has one.
  void give(const Call& call, std::string floats);
  /// Passes on the rows of an output [.., features] as a matrix.
  void give_rows(const Call& call, std::string matrix);
  /// Returns the rows of an input with codes as a matrix on its grid.
  std::string rows(const Call& call, std::size_t i);
  /// Passes on the output of a ReLU on codes or rows. Returns false for a ReLU on floats.
  [[nodiscard]] bool give_relu(const Call& call);
  [[nodiscard]] bool is_read(const Variable& value) const {
    return value.node() == calls_.output.node() || !early_.readers(value).empty();
  }
  /// Whether the value is an integer input of the graph, moved or not, that is only used as row numbers of
  /// tables.
  [[nodiscard]] bool takes_ids(const Variable& value) const;
  /// Whether a reader quantizes the value to E4M3.
  [[nodiscard]] bool ends_in_e4m3(const Variable& value) const;
  [[nodiscard]] const Shape& open_shape(const Call& call) const { return open_shapes_.at(&call); }
  /// Throws ArgumentError if the model has no quantizer at that path.
  [[nodiscard]] const TensorQuantizer& find_quantizer(const std::string& path) const;
  [[nodiscard]] const OnnxExportOptions& options() const noexcept { return options_; }
  [[nodiscard]] GraphBuilder& graph() noexcept { return graph_; }
  /// Returns the number of samples of the graph's input, an i64 [1]. Adds it on first use.
  std::string batch();

  void quantize(const Call& call);
  /// Returns floats on the grid of a function that quantizes and dequantizes. Computes the codes of a
  /// constant here.
  std::string put_on_grid(const Call& call, const Variable& input, Grid grid);
  /// Gives the output of the call the same value as its input.
  void alias(const Call& call);

 private:
  struct Value {
    std::string floats, transposed;        ///< names; empty until first used
    std::string rows;                      ///< the floats as a matrix [rows, features], if they are one
    const Call* maker = nullptr;           ///< call that computed the rows
    std::optional<QuantizedTensor> codes;  ///< codes of a constant
    const Grid* grid = nullptr;            ///< grid of `floats`
    std::string grid_codes;                ///< name of the codes
    bool cut = false;                      ///< whether codes below 0 become 0
  };

  void check_model() const;
  /// Throws ArgumentError if ONNX has no form of the call's operator.
  static void check_form(const Call& call);
  /// Throws ArgumentError if ONNX has no node for the grid on which the call puts an activation.
  void check_grid(const Call& call) const;
  void emit(const Call& call);
  /// Adds the input, or its parts, to the graph and converts integer inputs to floats.
  void add_inputs();
  /// Throws ArgumentError unless the parts cover the network's input in order, and no other operator reads
  /// it.
  void check_parts(const std::vector<const Call*>& parts) const;
  void add_part(const Call& part);
  void add_ends();
  [[nodiscard]] OnnxValueInfo end(std::string name, DType dtype, const Variable& value,
                                  const Shape& open) const;
  void name_codes();
  /// Whether all readers of the value, moved or not, use it as row numbers of a table.
  [[nodiscard]] bool is_ids(const Variable& value) const;
  [[nodiscard]] bool is_constant(const Variable& value) const {
    return value.is_leaf() && value.node() != calls_.input.node();
  }
  [[nodiscard]] QuantizedTensor parameter_codes(const Call& call) const;
  /// Whether the weight multiplies activation codes.
  [[nodiscard]] bool is_integer_factor(const Variable& weight) const;
  std::string add_constant(const Variable& value, Value& known, Form form);
  /// Quantizes `floats`, the output of a call, to a grid. `cut`: no code is below 0.
  void put(const Call& call, std::string floats, const Grid& grid, bool cut);
  void put_rows(const Call& call, const std::string& matrix, const Grid& grid, bool cut);
  /// Returns the name of the output codes of a call: the name of the quantizer that reads it, or an own name.
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
  std::unordered_set<const Node*> id_parts_;  // parts of the input that are integers in the graph
  std::unordered_map<const Call*, Shape> open_shapes_;
  std::unordered_map<const Call*, std::string> code_names_;  // for calls that quantize activations
  std::unordered_map<std::string, TensorQuantizer*> quantizers_;
  std::string batch_;
};

/// Whether ONNX has a form of the operator.
[[nodiscard]] bool has_form(std::string_view op);
/// Adds the form of the call's operator. Requires `has_form`.
void emit_operator(Exporting& out, const Call& call);
/// Writes linear layers and convolutions.
void emit_product(Exporting& out, const Call& call);
/// Writes linear layers whose engine quantizes the input at run time.
void emit_dynamic_product(Exporting& out, const Call& call);
/// Write quantization functions of the references that a model calls itself.
void emit_fake_quant(Exporting& out, const Call& call);
void emit_tensor_quant(Exporting& out, const Call& call);
void emit_tensor_quant_scale(Exporting& out, const Call& call);

}  // namespace fq::detail
