#include <algorithm>
#include <limits>
#include <set>

#include <google/protobuf/unknown_field_set.h>
#include <onnx/onnx_pb.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/detail/tensor_reader.h"
#include "fakequant/export/onnx/model.h"

namespace fq {
namespace {

/// Returns metadata of a node. libonnx supports it from 1.16 on. Older versions keep it as an unknown field.
template <class Node>
std::string node_metadata(const Node& node, std::string_view key) {
  constexpr int metadata_props = 9;
  if constexpr (requires { node.metadata_props(); })
    for (const auto& entry : node.metadata_props())
      if (entry.key() == key) return entry.value();
  onnx::StringStringEntryProto entry;
  const auto& fields = node.unknown_fields();
  for (int i = 0; i < fields.field_count(); ++i) {
    const auto& field = fields.field(i);
    if (field.number() != metadata_props ||
        field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      continue;
    if (entry.ParseFromString(field.length_delimited()) && entry.key() == key) return entry.value();
  }
  return {};
}

/// Returns the module that called a node, "layer1.0.conv1", from the metadata of PyTorch's newer exporter: a
/// Python list of increasingly longer paths and a name, "['', 'layer1', 'layer1.0', 'layer1.0.conv1',
/// 'conv2d']".
std::string node_scope(const onnx::NodeProto& node) {
  const std::string scopes = node_metadata(node, "pkg.torch.onnx.name_scopes");
  std::vector<std::string> paths;
  for (std::size_t begin = scopes.find('\''); begin != std::string::npos;) {
    const std::size_t end = scopes.find('\'', begin + 1);
    if (end == std::string::npos) break;
    paths.push_back(scopes.substr(begin + 1, end - begin - 1));
    begin = scopes.find('\'', end + 1);
  }
  // The last element is the name of the operator, the element before it the innermost module.
  const std::string path = paths.size() < 2 ? "" : paths[paths.size() - 2];
  return path.size() > 500 ? "" : path;
}

/// Reads one file. Errors name the file and the place.
class Loading {
 public:
  explicit Loading(const std::string& path) : path_(path), tensors_(path) {}

  OnnxModel run() {
    onnx::ModelProto proto = parse();
    OnnxModel model;
    set_header(model, proto);
    const onnx::GraphProto& graph = proto.graph();
    for (const auto& value : graph.initializer()) model.initializers.push_back(initializer(value));
    // The CRC-32C ties the external data to this model. A mix of two exports has valid shapes and wrong
    // weights.
    check_data(proto);
    check_functions(proto);
    for (const auto& value : graph.input()) model.inputs.push_back(value_info(value));
    for (const auto& value : graph.output()) model.outputs.push_back(value_info(value));
    for (const auto& value : graph.value_info()) model.values.push_back(value_info(value));
    for (const auto& node : graph.node()) model.nodes.push_back(read_node(node));
    check_names(model);
    return model;
  }

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& why) const {
    tensors_.fail(place, why);
  }

  onnx::ModelProto parse() const {
    const detail::FileReader file(path_);
    // Protobuf cannot parse more than 2 GiB.
    if (file.size() > std::numeric_limits<std::int32_t>::max())
      fail("", "it has more than 2 GiB: store the weights of large models as external data");
    std::string bytes(static_cast<std::size_t>(file.size()), '\0');
    file.read(0, bytes.data(), bytes.size());
    onnx::ModelProto proto;
    if (!proto.ParseFromString(bytes) || !proto.has_graph()) fail("", why_no_model());
    return proto;
  }

  std::string why_no_model() const {
    const std::string kind = detail::file_kind(path_);
    if (kind.empty() || kind == "an ONNX model") return "it is not an ONNX model, or is cut off";
    if (kind == "a PyTorch file")
      return "it is a PyTorch file, and reading it would run code from the file: load "
             "it in Python, and torch.onnx.export(model, (x,), \"net.onnx\") with an example input x "
             "writes an ONNX file";
    if (kind == "an ExecuTorch program")
      return "it is an ExecuTorch program, whose weights are packed for its backend: import the checkpoint "
             "or "
             "the ONNX file that it was made of";
    return fmt::format("it is {}, not an ONNX model", kind);
  }

  void set_header(OnnxModel& model, const onnx::ModelProto& proto) const {
    model.ir_version = static_cast<int>(std::clamp<std::int64_t>(proto.ir_version(), 0, 1 << 20));
    model.producer = proto.producer_name();
    model.producer_version = proto.producer_version();
    model.graph_name = proto.graph().name();
    // ONNX's default for files that state no opset.
    model.opset = 1;
    bool has_opset = false;
    for (const auto& opset : proto.opset_import()) {
      if (!opset.domain().empty() && opset.domain() != "ai.onnx") {
        model.other_opsets.emplace_back(opset.domain(), opset.version());
        continue;
      }
      if (has_opset && model.opset != opset.version())
        fail("", fmt::format("it has two opsets of ONNX, {} and {}: one is allowed", model.opset,
                             opset.version()));
      model.opset = opset.version();
      has_opset = true;
    }
    for (const auto& entry : proto.metadata_props())
      if (entry.key() != detail::onnx_data_crc) model.metadata.emplace_back(entry.key(), entry.value());
    if (proto.graph().sparse_initializer_size() > 0) fail("", "it has sparse tensors: make them dense");
  }

  /// Rejects functions with nodes of ONNX's own domain, because they would change the meaning of operators.
  void check_functions(const onnx::ModelProto& proto) const {
    for (const auto& function : proto.functions())
      if (function.domain().empty() || function.domain() == "ai.onnx")
        fail("function '" + function.name() + "'", "it redefines an operator of ONNX");
  }

  /// Checks that the external data were written together with the model.
  void check_data(const onnx::ModelProto& proto) const {
    const auto& written = proto.metadata_props();
    const auto crc = std::ranges::find(written, detail::onnx_data_crc, [](const auto& e) { return e.key(); });
    if (crc == written.end()) return;
    for (const auto& value : proto.graph().initializer())
      for (const auto& entry : value.external_data()) {
        if (entry.key() != "location") continue;
        const detail::FileReader file(tensors_.external_path(entry.value(), "tensor '" + value.name() + "'"));
        if (fmt::format("{:08x}", file.checksum(0, file.size())) != crc->value())
          fail("", fmt::format("its data in {} are of another export, or damaged: export both again",
                               entry.value()));
        return;
      }
  }

  OnnxInitializer initializer(const onnx::TensorProto& value) const {
    return {value.name(), tensors_.read(value, "tensor '" + value.name() + "'"),
            value.data_type() == detail::onnx_bool};
  }

  OnnxAttribute attribute(const onnx::AttributeProto& a, const std::string& place) const {
    if (!a.ref_attr_name().empty()) return std::monostate{};  // reference to an attribute of a function
    switch (a.type()) {
      case onnx::AttributeProto::INT:
        return std::int64_t{a.i()};
      case onnx::AttributeProto::FLOAT:
        return a.f();
      case onnx::AttributeProto::STRING:
        return a.s();
      case onnx::AttributeProto::INTS:
        return std::vector<std::int64_t>(a.ints().begin(), a.ints().end());
      case onnx::AttributeProto::FLOATS:
        return std::vector<float>(a.floats().begin(), a.floats().end());
      case onnx::AttributeProto::STRINGS:
        return std::vector<std::string>(a.strings().begin(), a.strings().end());
      case onnx::AttributeProto::TENSOR:
        // An unknown type matters only if a supported operator reads the attribute, which then rejects it.
        if (!detail::dtype_of_onnx(a.t().data_type())) return std::monostate{};
        return tensors_.read(a.t(), place + ", attribute '" + a.name() + "'");
      default:
        return std::monostate{};
    }
  }

  OnnxBranch branch(const std::string& name, const onnx::GraphProto& graph) const {
    OnnxBranch out{name, {}, {}, {}};
    for (const auto& value : graph.initializer()) out.initializers.push_back(initializer(value));
    for (const auto& node : graph.node()) out.nodes.push_back(read_node(node));
    for (const auto& value : graph.output()) out.outputs.push_back(value.name());
    return out;
  }

  OnnxNode read_node(const onnx::NodeProto& node) const {
    OnnxNode out{node.op_type(), node.name(), node.domain() == "ai.onnx" ? "" : node.domain(), {}, {}, {}};
    // Puts the path into the name, where PyTorch's older exporter writes it.
    if (const std::string scope = node_scope(node); !scope.empty() && out.name.find('/') == std::string::npos)
      out.name = fmt::format("/{}/{}", scope, out.name);
    out.inputs.assign(node.input().begin(), node.input().end());
    out.outputs.assign(node.output().begin(), node.output().end());
    for (const auto& a : node.attribute())
      out.attributes.emplace_back(a.name(), attribute(a, describe_node(out)));
    for (const auto& a : node.attribute())
      if (a.type() == onnx::AttributeProto::GRAPH && node.op_type() == "If")
        out.branches.push_back(branch(a.name(), a.g()));
    return out;
  }

  static std::string describe_node(const OnnxNode& node) {
    const std::string name = !node.name.empty() || node.outputs.empty() ? node.name : node.outputs[0];
    return fmt::format("node '{}' ({})", name, node.op);
  }

  static OnnxValueInfo value_info(const onnx::ValueInfoProto& value) {
    OnnxValueInfo out{value.name(), OnnxKind::other, DType::f32, false, {}};
    if (!value.type().has_tensor_type()) return out;
    const auto& tensor = value.type().tensor_type();
    if (tensor.elem_type() == detail::onnx_bool) {
      out.kind = OnnxKind::boolean;
    } else if (tensor.elem_type() == detail::onnx_string) {
      out.kind = OnnxKind::text;
    } else if (const auto dtype = detail::dtype_of_onnx(tensor.elem_type())) {
      out.kind = OnnxKind::tensor;
      out.dtype = *dtype;
    }
    out.has_shape = tensor.has_shape();
    for (const auto& dim : tensor.shape().dim())
      out.shape.push_back({dim.has_dim_value() ? dim.dim_value() : -1, dim.dim_param()});
    return out;
  }

  void check_names(const OnnxModel& model) const {
    std::set<std::string_view> known, constant;
    for (const auto& value : model.initializers)
      if (!constant.insert(value.name).second) fail("tensor '" + value.name + "'", "the name is used twice");
    known = constant;
    // Up to IR version 3, initializers had to be listed as inputs too.
    for (const auto& value : model.inputs)
      if (!known.insert(value.name).second && !constant.contains(value.name))
        fail("input '" + value.name + "'", "the name is used twice");
    // Nodes must be in the order of execution, which also excludes cycles.
    for (const auto& node : model.nodes) {
      for (const auto& input : node.inputs)
        if (!input.empty() && !known.contains(input))
          fail(describe_node(node),
               fmt::format("it reads '{}', which no earlier node or input defines", input));
      for (const auto& output : node.outputs)
        if (!output.empty() && !known.insert(output).second)
          fail(describe_node(node), fmt::format("it writes '{}' a second time", output));
    }
    for (const auto& value : model.outputs)
      if (!known.contains(value.name)) fail("output '" + value.name + "'", "no node or input defines it");
  }

  std::string path_;
  detail::OnnxTensorReader tensors_;
};

}  // namespace

OnnxModel load_onnx(const std::string& path) { return Loading(path).run(); }

}  // namespace fq
