#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <variant>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/tables/class_table.h"
#include "fakequant/cli/tables/inspect_calibration.h"
#include "fakequant/cli/tables/output.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/gguf/file.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/export/safetensors/file.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/quantize.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/data/detail/data_file.h"
#include "fakequant/train/loop/checkpoint.h"
#include "fakequant/train/memory_plan.h"

namespace fq::cli {
namespace {

using nlohmann::ordered_json;

/// Prints one line per tensor, and collects their JSON objects.
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

// Lists initializers, which are the weights and scales of the file.
ordered_json inspect_onnx(const std::string& path, Output& output) {
  const OnnxModel model = load_onnx(path);
  Tensors tensors(output);
  for (const auto& constant : model.initializers)
    tensors.add(constant.name, name(constant.value.dtype()), constant.value.shape());
  const std::int64_t quantizers = quantizing_nodes(model);
  const std::string producer =
      model.producer + (model.producer_version.empty() ? "" : " " + model.producer_version);
  output.line(fmt::format("ONNX of {}: opset {}, IR version {}; {} nodes, {} of them quantize; {} tensors",
                          producer.empty() ? "an unnamed program" : producer, model.opset, model.ir_version,
                          model.nodes.size(), quantizers, tensors.json().size()));
  return {{"kind", "onnx"},
          {"producer", model.producer},
          {"opset", model.opset},
          {"ir_version", model.ir_version},
          {"nodes", model.nodes.size()},
          {"quantizers", quantizers},
          {"tensors", tensors.json()}};
}

// Returns a text of the metadata, or an empty one for a missing key and a value of another type.
std::string metadata_text(const GgufModel& model, const char* key) {
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
  const std::string architecture = metadata_text(model, "general.architecture"),
                    producer = metadata_text(model, "general.quantized_by");
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
  // Packed weights have a scale tensor next to them, by the naming of ModelOpt and compressed-tensors.
  const auto scales = std::ranges::count_if(
      file.entries(), [](const auto& entry) { return entry.name.ends_with("weight_scale"); });
  output.line(
      fmt::format("safetensors: {} tensors, {} of them scales of weights", file.entries().size(), scales));
  return {{"kind", "safetensors"},
          {"metadata", file.metadata()},
          {"quantized_tensors", scales},
          {"tensors", tensors.json()}};
}

/// Reports a file that `export` writes: its format, its producer, and name, type and shape of its tensors.
/// Returns nothing if the file name has no suffix of these formats. Throws as the reader of the format.
std::optional<ordered_json> inspect_exported(const std::string& path, Output& output) {
  if (path.ends_with(".onnx")) return inspect_onnx(path, output);
  if (path.ends_with(".gguf")) return inspect_gguf(path, output);
  if (path.ends_with(".safetensors")) return inspect_safetensors(path, output);
  return std::nullopt;
}

// Reads the header only.
bool is_state_file(const std::string& path) {
  try {
    static_cast<void>(state_file_info(path));
    return true;
  } catch (const FileError&) {
    return false;
  }
}

/// Returns the optimizer of the checkpoint's run, or the default of train and qat.
OptimizerOptions saved_optimizer(const StateDict& state) {
  OptimizerOptions options;
  if (!state.has_attribute("optimizer/type") || !state.attribute("optimizer/type").is_string())
    return options;
  options.kind = state.attribute("optimizer/type").get<std::string>();
  // SGD without momentum saves no tensors.
  if (state.sub("optimizer").size() == 0) options.momentum = 0;
  return options;
}

std::string optimizer_text(const OptimizerOptions& options) {
  return options.kind == "sgd" && options.momentum.value_or(0.9) > 0 ? "sgd with momentum" : options.kind;
}

ordered_json inspect_memory(Network& network, const OptimizerOptions& optimizer, std::int64_t batch,
                            Output& output) {
  Shape shape = network.input_shape();
  shape[0] = batch;
  const MemoryPlan plan = plan_memory(network.module(), shape, optimizer);
  output.line(
      fmt::format("training step of {} samples, {}: peak {}; saved activations {}, parameters "
                  "{}, gradients {}, "
                  "optimizer {}, weight codes {}",
                  batch, optimizer_text(optimizer), megabytes(plan.peak), megabytes(plan.saved_activations),
                  megabytes(plan.parameters), megabytes(plan.gradients), megabytes(plan.optimizer_state),
                  megabytes(plan.weight_codes)));
  return {{"batch", batch},
          {"optimizer", optimizer.kind},
          {"peak", plan.peak},
          {"saved_activations", plan.saved_activations},
          {"parameters", plan.parameters},
          {"gradients", plan.gradients},
          {"optimizer_state", plan.optimizer_state},
          {"weight_codes", plan.weight_codes}};
}

ordered_json inspect_checkpoint(const std::string& path, std::int64_t batch, Output& output) {
  const StateDict state = load_checkpoint(path);
  Network network = Network::from_state(state, path);
  const Summary sizes = summary(network.module(), network.input_shape());
  const bool compressed = is_compressed(network.module());
  std::ostringstream text;
  text.exceptions(std::ios::badbit);  // throw instead of a truncated text without memory
  text << sizes;
  if (network.quantized()) print_quant_summary(network.module(), text);
  text << "model " << network.identity().model.name() << ", "
       << classes_text(network.identity().classes, network.identity().class_names) << "; "
       << (network.folded() ? "batch norm folded, " : "") << weight_bytes(network) << " bytes of weights"
       << (compressed ? ", compressed" : "");
  output.line(text.str());
  ordered_json result{{"kind", "checkpoint"}};
  // Compressed weights cannot be trained, so there is no training step to plan.
  if (!compressed) result["memory"] = inspect_memory(network, saved_optimizer(state), batch, output);
  result.update({{"compressed", compressed},
                 {"identity", network.identity().to_json()},
                 {"parameters", sizes.parameters},
                 {"multiply_adds", sizes.multiply_adds},
                 {"weight_bytes", weight_bytes(network)},
                 {"quantizers", named_quantizers(network.module()).size()}});
  return result;
}

ordered_json inspect_state(const std::string& path, std::int64_t batch, Output& output) {
  const StateFileInfo info = state_file_info(path);
  if (info.kind == "checkpoint") return inspect_checkpoint(path, batch, output);
  const StateDict state = load_state(path, {});
  for (const auto& [name, tensor] : state.tensors())
    output.line(fmt::format("{:<50} {}", name, tensor.describe()));
  return {{"kind", info.kind}, {"version", info.version}, {"bytes", info.bytes}, {"datasets", state.names()}};
}

std::string labels_text(const std::optional<fq::detail::DataFile::LabelKind>& kind, const Hdf5Dataset& data) {
  if (!kind) return "no labels";
  return kind->classes() ? classes_text(data.classes(), data.class_names())
                         : fmt::format("labels {} {}", name(kind->dtype), to_string(kind->shape));
}

ordered_json inspect_group(const std::string& path, const std::string& group, Output& output) {
  Hdf5DatasetOptions options;
  options.split = group;
  options.may_lack_labels = true;
  options.check_layout = false;
  const auto kind = fq::detail::DataFile(path, options).label_kind();
  // Labels are opened only if they are classes, whose count and names are printed.
  options.labels = kind && kind->classes();
  const Hdf5Dataset data(path, options);
  output.line(fmt::format("{:<6} {} samples of {}, {}", group, data.size(), to_string(data.sample_shape()),
                          labels_text(kind, data)));
  return {{"samples", data.size()},
          {"shape", data.sample_shape()},
          {"classes", data.classes()},
          {"class_names", data.class_names()}};
}

ordered_json inspect_data(const std::string& path, Output& output) {
  auto groups = ordered_json::object();
  for (const auto& group : fq::detail::data_groups(path)) groups[group] = inspect_group(path, group, output);
  return {{"kind", "data"}, {"groups", groups}};
}

/// Rejects pages and JSON files with a better message than the data set reader.
void check_inspectable(const std::string& path) {
  if (!path.ends_with(".html") && !path.ends_with(".json")) return;
  if (fq::detail::file_kind(path) != "a text file") return;
  throw FileError(path, "",
                  fmt::format("[inspect] {} is a text file: use a checkpoint or another file that fakequant "
                              "wrote as HDF5, a data set, or a .onnx, .gguf or .safetensors file",
                              path));
}

FlagSet inspect_flags(InspectOptions& options) {
  FlagSet set("inspect", "Prints the content of a checkpoint, a data set, an exported file or another file.",
              "FILE [flags]");
  set.group("Files")
      .argument(options.file, "file", "FILE",
                "a checkpoint, scales or predictions file, a calibration state, a data set, or an exported "
                ".onnx, .gguf or .safetensors file")
      .required();
  add_inspect_calibration_flags(set, options);
  add_general_flags(set, options.general);
  return set;
}

ordered_json inspect(const InspectOptions& options, Output& output) {
  if (options.reports_calibration) return inspect_calibration(options, output);
  // The content decides for files of fakequant, the suffix for other formats. HDF5 is the last guess.
  const std::string path = read_checkpoint_path(options.file);
  if (is_state_file(path)) return inspect_state(path, options.data.batch, output);
  if (auto found = inspect_exported(path, output)) return *std::move(found);
  check_inspectable(path);
  return inspect_data(path, output);
}

Plan plan_inspect(const InspectOptions& options, PlannedFiles& planned) {
  // In a recipe, all inputs must exist or be written by an earlier phase.
  const std::pair<const char*, std::string> files[]{{"file", options.file},
                                                    {"data", options.data.data},
                                                    {"state", options.state},
                                                    {"plan", options.plan},
                                                    {"config", options.quantization.config.value_or("")}};
  for (const auto& [flag, path] : files)
    if (!path.empty()) planned.check_there("inspect", flag, path);
  Plan plan;
  plan.add(
      fmt::format("inspect {}{}", options.reports_calibration ? "the calibration of " : "", options.file),
      [&options](Output& output, ordered_json& result) { result = inspect(options, output); });
  return plan;
}

}  // namespace

Command inspect_command() {
  return {"inspect", "print the content of a checkpoint, model or data file",
          typed(inspect_flags, plan_inspect), true};
}

}  // namespace fq::cli
