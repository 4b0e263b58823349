#include "fakequant/cli/tables/inspect_exported.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include <fmt/format.h>

#include "fakequant/export/gguf/file.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/export/safetensors/file.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

/// A line for each tensor, and the object of it.
class Tensors {
 public:
  explicit Tensors(Output& output) : output_(output) {}

  void add(const std::string& name, std::string_view type, const Shape& shape) {
    output_.line(fmt::format("{:<50} {} {}", name, type, to_string(shape)));
    found_.push_back({{"name", name}, {"type", type}, {"shape", shape}});
  }
  [[nodiscard]] const ordered_json& json() const { return found_; }

 private:
  Output& output_;
  ordered_json found_ = ordered_json::array();
};

std::int64_t quantizing_nodes(const OnnxModel& model) {
  return std::ranges::count_if(model.nodes, [](const OnnxNode& node) {
    return node.op == "QuantizeLinear" || node.op == "DynamicQuantizeLinear";
  });
}

ordered_json inspect_onnx(const std::string& path, Output& output) {
  const OnnxModel model = load_onnx(path);
  Tensors tensors(output);
  for (const auto& constant : model.initializers)
    tensors.add(constant.name, name(constant.value.dtype()), constant.value.shape());
  const std::int64_t quantizers = quantizing_nodes(model);
  const std::string producer =
      model.producer + (model.producer_version.empty() ? "" : " " + model.producer_version);
  output.line(fmt::format("ONNX of {}: opset {}, IR version {}; {} nodes, {} of them quantize; {} tensors",
                          producer.empty() ? "a program that does not say its name" : producer, model.opset,
                          model.ir_version, model.nodes.size(), quantizers, tensors.json().size()));
  return {{"kind", "onnx"},
          {"producer", model.producer},
          {"opset", model.opset},
          {"ir_version", model.ir_version},
          {"nodes", model.nodes.size()},
          {"quantizers", quantizers},
          {"tensors", tensors.json()}};
}

std::string text_of(const GgufModel& model, const char* key) {
  const auto* value = model.value(key);
  const auto* text = value != nullptr ? std::get_if<std::string>(value) : nullptr;
  return text != nullptr ? *text : "";
}

ordered_json inspect_gguf(const std::string& path, Output& output) {
  const GgufModel model = load_gguf(path);
  Tensors tensors(output);
  for (const auto& tensor : model.tensors) tensors.add(tensor.name, name(tensor.type), tensor.shape);
  const auto quantized = std::ranges::count_if(model.tensors, [](const GgufTensor& tensor) {
    return tensor.type == GgufType::q4_0 || tensor.type == GgufType::q8_0;
  });
  const std::string architecture = text_of(model, "general.architecture"),
                    producer = text_of(model, "general.quantized_by");
  output.line(fmt::format("GGUF of architecture {}{}: {} tensors, {} of them blocks of codes, {} keys",
                          architecture, producer.empty() ? "" : ", quantized by " + producer,
                          model.tensors.size(), quantized, model.metadata.size()));
  return {{"kind", "gguf"},
          {"producer", producer},
          {"architecture", architecture},
          {"quantized_tensors", quantized},
          {"tensors", tensors.json()}};
}

ordered_json inspect_safetensors(const std::string& path, Output& output) {
  const SafetensorsFile file(path);
  Tensors tensors(output);
  for (const auto& entry : file.entries()) tensors.add(entry.name, entry.dtype, entry.shape);
  const auto scales = std::ranges::count_if(
      file.entries(), [](const auto& entry) { return entry.name.ends_with("weight_scale"); });
  output.line(
      fmt::format("safetensors: {} tensors, {} of them scales of weights", file.entries().size(), scales));
  return {{"kind", "safetensors"},
          {"metadata", file.metadata()},
          {"quantized_tensors", scales},
          {"tensors", tensors.json()}};
}

}  // namespace

std::optional<ordered_json> inspect_exported(const std::string& path, Output& output) {
  if (path.ends_with(".onnx")) return inspect_onnx(path, output);
  if (path.ends_with(".gguf")) return inspect_gguf(path, output);
  if (path.ends_with(".safetensors")) return inspect_safetensors(path, output);
  return std::nullopt;
}

}  // namespace fq::cli
