#pragma once

/// OnnxModel: an ONNX file in memory, without protobuf. The exporter, the importer and the rule checks use
/// it. Also loads and saves the files.
///
///     save_onnx("net.onnx", export_onnx(model, {3, 32, 32}));
///     const OnnxModel file = load_onnx("net.onnx");
///     for (const OnnxNode& node : file.nodes) std::cout << node.op << ' ' << node.name << '\n';
///
/// It is a plain value: a graph can be changed before it is saved. Names connect nodes, as in ONNX.

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

/// Element types of ONNX without a DType, or left open by a file.
enum class OnnxKind : unsigned char { tensor, boolean, text, other };

/// Value of an attribute. Graphs (of If: see OnnxBranch) and other kinds that no supported operator uses are
/// std::monostate. Tensors are row-major on the CPU.
using OnnxAttribute =
    std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>,
                 std::vector<float>, std::vector<std::string>, Tensor>;

/// A constant tensor of the graph, for example a weight. Booleans are u8 with `boolean` set.
struct OnnxInitializer {
  std::string name;
  Tensor value;
  bool boolean = false;
};

struct OnnxNode;

/// One branch of an If. It may also read names of the surrounding graph.
struct OnnxBranch {
  std::string name;  ///< "then_branch" or "else_branch"
  std::vector<OnnxNode> nodes;
  std::vector<OnnxInitializer> initializers;
  std::vector<std::string> outputs;
};

/// One node. A missing input is "".
struct OnnxNode {
  std::string op, name;
  std::string domain;  ///< "" is ONNX
  std::vector<std::string> inputs, outputs;
  std::vector<std::pair<std::string, OnnxAttribute>> attributes;
  std::vector<OnnxBranch> branches = {};  ///< of If, as read from a file; saving omits them

  /// Returns the attribute with that name, or null. The pointer is valid while the node lives.
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

/// Type and shape of an input, an output or an intermediate value of a graph.
struct OnnxValueInfo {
  std::string name;
  OnnxKind kind = OnnxKind::tensor;
  /// Element type for the kind `tensor`.
  DType dtype = DType::f32;
  /// Whether the file states a shape. If false, the rank is unknown too.
  bool has_shape = false;
  std::vector<OnnxDim> shape;
};

/// A graph and its metadata. Each node comes after the nodes whose outputs it reads.
struct OnnxModel {
  /// Versions of the file format and of ONNX's operators.
  int ir_version = 7;
  std::int64_t opset = 13;  ///< of the domain ""
  /// Versions of other domains, "com.microsoft" and 1.
  std::vector<std::pair<std::string, std::int64_t>> other_opsets;
  /// Name and version of the producer, for information.
  std::string producer, producer_version, graph_name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxInitializer> initializers;
  /// Inputs and outputs of the graph, and types of intermediate values.
  std::vector<OnnxValueInfo> inputs, outputs, values;
  std::vector<std::pair<std::string, std::string>> metadata;

  /// Returns the constant with that name, or null.
  [[nodiscard]] const OnnxInitializer* initializer(std::string_view name) const {
    const auto found = std::ranges::find(initializers, name, &OnnxInitializer::name);
    return found == initializers.end() ? nullptr : &*found;
  }
};

/// Whether the library was built with libonnx. Without it the functions below throw BackendError.
[[nodiscard]] bool has_onnx() noexcept;

/// Limit of tensor bytes within a model file: protobuf's 2 GiB, minus room for the graph.
inline constexpr std::int64_t onnx_inline_limit = (std::int64_t{1} << 31) - (std::int64_t{1} << 26);

/// Writes the model. If its initializers have more than `inline_limit` bytes together, the initializers of
/// 1024 bytes or more go to `path` + ".data", aligned to 4096 bytes. Replaces a ".data" file of an earlier
/// export at this path. Both files are written to temporary files, synced and renamed together, the data
/// first. The model stores the CRC-32C of the data as metadata `fakequant.data_crc32c`. Throws FileError and
/// SystemError as other writers.
void save_onnx(const std::string& path, const OnnxModel& model,
               std::int64_t inline_limit = onnx_inline_limit);

/// Reads an untrusted file and its external data. The size of these files limits the allocated memory.
///
/// Throws FileError if the file is not an ONNX model or is longer than 2 GiB. Also throws if a node reads a
/// name that no earlier node or initializer defines (as with cycles), if a name is defined twice, or if the
/// bytes of a tensor do not match its shape and type. External data must be in the folder of the model and
/// have the expected length and checksum.
[[nodiscard]] OnnxModel load_onnx(const std::string& path);

/// A TensorRT rule that a node breaks. `node` is the node's name, its first output if it has no name, or the
/// name of a tensor.
struct RuleBreak {
  std::string node, rule;
};

/// Returns all violations of TensorRT's rules for quantized models, in the order of the nodes. The list is
/// empty for a model that TensorRT 10 and 11 accept. TensorRT itself is not needed. The rules come from
/// "Working with Quantized Types", the reference of the Quantize and Dequantize layers, and onnx-tensorrt's
/// list of operators:
///
///  * opset 9 to 25;
///  * codes are signed: INT8, FP8 E4M3, FP4 E2M1, and INT4 for constants only. An int32 bias after
///    DequantizeLinear is rejected: it is a float constant;
///  * zero points are 0 or omitted;
///  * scales are constants (or a DequantizeLinear of constants, FP4's two levels), positive and finite;
///  * activations have one scale. Constants have one, or one per output channel of the layer that reads them
///    (axis 0 of Conv, 1 of ConvTranspose, the output axis of MatMul and Gemm). Types other than INT8 may
///    have one per block along one of the last two axes;
///  * an Add with a quantized sum reads two DequantizeLinear: with one, the other branch stays float;
///  * graph outputs are not codes;
///  * tensors have at most 2^31 - 1 elements.
[[nodiscard]] std::vector<RuleBreak> tensorrt_rule_breaks(const OnnxModel& model);

}  // namespace fq
