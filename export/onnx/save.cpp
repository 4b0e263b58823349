#include <filesystem>
#include <optional>

#include <onnx/onnx_pb.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/model.h"

namespace fq {
namespace {

// Smaller tensors stay in the model. Larger tensors are aligned to pages.
constexpr std::int64_t kSmall = 1024, kPage = 4096;

void set_tensor(onnx::TensorProto& to, const Tensor& value, bool boolean = false) {
  for (const auto size : value.shape()) to.add_dims(size);
  to.set_data_type(boolean ? detail::onnx_bool : detail::onnx_type(value.dtype()));
}

void set_inline(onnx::TensorProto& to, const Tensor& value) {
  to.set_raw_data(value.raw(), static_cast<std::size_t>(value.nbytes()));
}

/// External data file for tensors that are too large for the model.
// The checksum covers the whole file, including the padding.
class ExternalData {
 public:
  explicit ExternalData(const std::string& model_path)
      : name_(std::filesystem::path(model_path).filename().string() + ".data"), file_(model_path + ".data") {}

  void add(onnx::TensorProto& to, const Tensor& value) {
    const std::string gap(static_cast<std::size_t>((kPage - at_ % kPage) % kPage), '\0');
    write(gap.data(), gap.size());
    at_ += static_cast<std::int64_t>(gap.size());
    write(value.raw(), static_cast<std::size_t>(value.nbytes()));
    to.set_data_location(onnx::TensorProto::EXTERNAL);
    entry(to, "location", name_);
    entry(to, "offset", std::to_string(at_));
    entry(to, "length", std::to_string(value.nbytes()));
    at_ += value.nbytes();
  }
  AtomicFile& file() { return file_; }
  [[nodiscard]] std::string checksum() const { return fmt::format("{:08x}", crc_); }

 private:
  void write(const void* data, std::size_t bytes) {
    file_.write(data, bytes);
    crc_ = crc32c(data, bytes, crc_);
  }

  static void entry(onnx::TensorProto& to, const char* key, const std::string& value) {
    auto* made = to.add_external_data();
    made->set_key(key);
    made->set_value(value);
  }

  std::string name_;
  AtomicFile file_;
  std::int64_t at_ = 0;
  std::uint32_t crc_ = 0;
};

struct SetAttribute {
  onnx::AttributeProto& to;

  // Graphs and other kinds that the reader drops cannot be written again.
  void operator()(std::monostate) const {
    throw ArgumentError(
        fmt::format("[save_onnx] the attribute '{}' has no value that can be written", to.name()));
  }
  // Readers require `type` next to the value.
  void operator()(std::int64_t value) const {
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(value);
  }
  void operator()(float value) const {
    to.set_type(onnx::AttributeProto::FLOAT);
    to.set_f(value);
  }
  void operator()(const std::string& value) const {
    to.set_type(onnx::AttributeProto::STRING);
    to.set_s(value);
  }
  void operator()(const std::vector<std::int64_t>& values) const {
    to.set_type(onnx::AttributeProto::INTS);
    for (const auto value : values) to.add_ints(value);
  }
  void operator()(const std::vector<float>& values) const {
    to.set_type(onnx::AttributeProto::FLOATS);
    for (const auto value : values) to.add_floats(value);
  }
  void operator()(const std::vector<std::string>& values) const {
    to.set_type(onnx::AttributeProto::STRINGS);
    for (const auto& value : values) to.add_strings(value);
  }
  void operator()(const Tensor& value) const {
    to.set_type(onnx::AttributeProto::TENSOR);
    set_tensor(*to.mutable_t(), value);
    set_inline(*to.mutable_t(), value);
  }
};

void set_node(onnx::NodeProto& to, const OnnxNode& node) {
  to.set_op_type(node.op);
  to.set_name(node.name);
  if (!node.domain.empty()) to.set_domain(node.domain);
  for (const auto& input : node.inputs) to.add_input(input);
  for (const auto& output : node.outputs) to.add_output(output);
  for (const auto& [name, value] : node.attributes) {
    auto& made = *to.add_attribute();
    made.set_name(name);
    std::visit(SetAttribute{made}, value);
  }
}

void set_value(onnx::ValueInfoProto& to, const OnnxValueInfo& value) {
  to.set_name(value.name);
  auto& tensor = *to.mutable_type()->mutable_tensor_type();
  // A missing shape means an unknown rank, and a dimension without a value an unknown size.
  tensor.set_elem_type(value.kind == OnnxKind::boolean ? detail::onnx_bool : detail::onnx_type(value.dtype));
  if (!value.has_shape) return;
  auto& shape = *tensor.mutable_shape();
  for (const auto& dim : value.shape) {
    auto& made = *shape.add_dim();
    if (dim.size >= 0)
      made.set_dim_value(dim.size);
    else if (!dim.symbol.empty())
      made.set_dim_param(dim.symbol);
  }
}

void set_opset(onnx::ModelProto& to, const std::string& domain, std::int64_t version) {
  auto& opset = *to.add_opset_import();
  opset.set_domain(domain);
  opset.set_version(version);
}

void set_metadata(onnx::ModelProto& to, const std::string& key, const std::string& value) {
  auto& made = *to.add_metadata_props();
  made.set_key(key);
  made.set_value(value);
}

void set_graph(onnx::GraphProto& to, const OnnxModel& model, ExternalData* external) {
  to.set_name(model.graph_name);
  for (const auto& node : model.nodes) set_node(*to.add_node(), node);
  for (const auto& [name, given, boolean] : model.initializers) {
    auto& made = *to.add_initializer();
    // ONNX has only row-major tensors.
    const Tensor value = given.to(Layout::row_major);
    made.set_name(name);
    set_tensor(made, value, boolean);
    if (external != nullptr && value.nbytes() >= kSmall)
      external->add(made, value);
    else
      set_inline(made, value);
  }
  for (const auto& value : model.inputs) set_value(*to.add_input(), value);
  for (const auto& value : model.outputs) set_value(*to.add_output(), value);
  for (const auto& value : model.values) set_value(*to.add_value_info(), value);
}

}  // namespace

bool has_onnx() noexcept { return true; }

void save_onnx(const std::string& path, const OnnxModel& model, std::int64_t inline_limit) {
  std::int64_t bytes = 0;
  // Protobuf limits a file to 2 GiB, so large weights go to a file of their own.
  for (const auto& initializer : model.initializers) bytes += initializer.value.nbytes();
  std::optional<ExternalData> external;
  if (bytes > inline_limit) external.emplace(path);
  onnx::ModelProto proto;
  proto.set_ir_version(model.ir_version);
  proto.set_producer_name(model.producer);
  proto.set_producer_version(model.producer_version);
  set_opset(proto, "", model.opset);
  for (const auto& [domain, version] : model.other_opsets) set_opset(proto, domain, version);
  for (const auto& [key, value] : model.metadata) set_metadata(proto, key, value);
  set_graph(*proto.mutable_graph(), model, external ? &*external : nullptr);
  // After `set_graph`, which has written the data.
  if (external) set_metadata(proto, detail::onnx_data_crc, external->checksum());
  std::string text;
  FQ_CHECK(proto.SerializeToString(&text), "save_onnx", "the graph of {} has more than 2 GiB", path);
  AtomicFile file(path);
  file.write(text);
  // The data is renamed first: a model never refers to data that does not exist.
  external ? commit_together({external->file(), file}) : file.commit();
}

}  // namespace fq
