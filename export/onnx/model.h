#pragma once

/// OnnxModel: an ONNX file in memory, free of protobuf: what the exporter makes, the importer reads and the
/// rules check; and the files themselves.
///
///     save_onnx("net.onnx", export_onnx(model, {3, 32, 32}));
///     const OnnxModel file = load_onnx("net.onnx");
///     for (const OnnxNode& node : file.nodes) std::cout << node.op << ' ' << node.name << '\n';
///
/// It is a plain value: a graph can be changed before it is saved. Names tie nodes to each other, as in ONNX
/// itself.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// The element types that ONNX has and DType has not, or that a file leaves open.
enum class OnnxKind : unsigned char { tensor, boolean, text, other };

/// The value of an attribute. Graphs (of If: see OnnxBranch) and other kinds that no supported operator has
/// are std::monostate. Tensors are row-major on the CPU.
using OnnxAttribute =
    std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>,
                 std::vector<float>, std::vector<std::string>, Tensor>;

/// A constant tensor of the graph, such as a weight. Booleans are u8 with `boolean` set.
struct OnnxInitializer {
  std::string name;
  Tensor value;
  bool boolean = false;
};

struct OnnxNode;

/// One way of an If: it also reads names of the graph around it.
struct OnnxBranch {
  std::string name;  ///< "then_branch" or "else_branch"
  std::vector<OnnxNode> nodes;
  std::vector<OnnxInitializer> initializers;
  std::vector<std::string> outputs;
};

/// One node. An input that is left out is "".
struct OnnxNode {
  std::string op, name;
  std::string domain;  ///< "" is ONNX itself
  std::vector<std::string> inputs, outputs;
  std::vector<std::pair<std::string, OnnxAttribute>> attributes;
  std::vector<OnnxBranch> branches = {};  ///< of If, as read from a file; saving leaves them out

  /// The attribute of that name; null when there is none. The pointer is good while the node lives.
  [[nodiscard]] const OnnxAttribute* attribute(std::string_view key) const {
    const auto found = std::ranges::find(attributes, key, &std::pair<std::string, OnnxAttribute>::first);
    return found == attributes.end() ? nullptr : &found->second;
  }
};

/// One axis: a size, or a symbol ("N") with size -1.
struct OnnxDim {
  std::int64_t size = -1;
  std::string symbol;
};

/// Type and shape of a graph's input or output, or of a value between.
struct OnnxValueInfo {
  std::string name;
  OnnxKind kind = OnnxKind::tensor;
  /// The element type, of kind `tensor`.
  DType dtype = DType::f32;
  /// Whether the file says a shape; where not, not even the rank is known.
  bool has_shape = false;
  std::vector<OnnxDim> shape;
};

/// A graph and what the file says of it. Nodes stand in an order in which each comes after those whose
/// outputs it reads.
struct OnnxModel {
  /// Versions of the file's format and of ONNX's own operators.
  int ir_version = 7;
  std::int64_t opset = 13;  ///< of the domain ""
  /// Versions of other domains, "com.microsoft" and 1.
  std::vector<std::pair<std::string, std::int64_t>> other_opsets;
  /// Who wrote it, for people.
  std::string producer, producer_version, graph_name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxInitializer> initializers;
  /// What goes in and comes out, and what the file says of values between.
  std::vector<OnnxValueInfo> inputs, outputs, values;
  std::vector<std::pair<std::string, std::string>> metadata;

  /// The constant of that name; null when there is none.
  [[nodiscard]] const OnnxInitializer* initializer(std::string_view name) const {
    const auto found = std::ranges::find(initializers, name, &OnnxInitializer::name);
    return found == initializers.end() ? nullptr : &*found;
  }
};

/// Whether the library was built with libonnx; without it the functions below throw BackendError.
[[nodiscard]] bool has_onnx() noexcept;

/// What protobuf can hold in one file, 2 GiB, less room for the graph: in bytes.
inline constexpr std::int64_t onnx_inline_limit = (std::int64_t{1} << 31) - (std::int64_t{1} << 26);

/// Writes the model. When its initializers have more than `inline_limit` bytes together, those of 1024 bytes
/// and more go to `path` + ".data" beside it, 4096-byte aligned; a ".data" file of an earlier export at this
/// path is replaced by it. Both are written beside and synced, then renamed back to back, the data first, and
/// the model has their CRC-32C as metadata `fakequant.data_crc32c`. Throws FileError, SystemError as other
/// files do.
void save_onnx(const std::string& path, const OnnxModel& model,
               std::int64_t inline_limit = onnx_inline_limit);

/// Reads a file from anywhere; external data is read too. What is allocated is bounded by the size of the
/// file and of its external data.
///
/// Throws FileError when it is not an ONNX model, is longer than 2 GiB, has a node that reads a name nobody
/// has written before it (cycles and missing initializers are that), a name written twice, a tensor whose
/// bytes are not those of its shape and type, or external data outside of its own folder, of a length other
/// than announced or, where the model has it, of another checksum.
[[nodiscard]] OnnxModel load_onnx(const std::string& path);

/// A rule of TensorRT that a node breaks. `node` is the node's name, its first output where it has none, or
/// the name of a tensor.
struct RuleBreak {
  std::string node, rule;
};

/// Returns all breaks of TensorRT's rules for quantized models, in the order of the nodes; none for a model
/// that TensorRT 10 and 11 accept. TensorRT itself is not needed. The rules are those of "Working with
/// Quantized Types", the reference of the Quantize and Dequantize layers and onnx-tensorrt's list of
/// operators:
///
///  * opset 9 to 25;
///  * codes are signed: INT8, FP8 E4M3, FP4 E2M1, and INT4 for constants only. An int32 bias after
///    DequantizeLinear is rejected: it is a float constant;
///  * zero points are 0 or left out;
///  * scales are constants (or a DequantizeLinear of constants, FP4's two levels), positive and finite;
///  * activations have one scale; constants have one, or one an output channel of the layer that reads them
///    (axis 0 of Conv, 1 of ConvTranspose, that of the outputs of MatMul and Gemm), or, of other types than
///    INT8, one a block along one of the last two axes;
///  * an Add whose sum is quantized reads two DequantizeLinear: with one, the other branch stays float;
///  * graph outputs are not codes;
///  * tensors have at most 2^31 - 1 elements.
[[nodiscard]] std::vector<RuleBreak> tensorrt_rule_breaks(const OnnxModel& model);

}  // namespace fq
