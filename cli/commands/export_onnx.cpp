#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/flags/output_kind.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/model.h"
#include "fakequant/layers/model/float_operators.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

/// Returns the target of --target, or of the model.
Target chosen_target(const ExportOptions& options, Module& model) {
  if (options.target) return *options.target;
  return model_target(model) == Target::tensorrt ? Target::tensorrt : Target::ort;
}

OnnxModel onnx_model(const Network& network, const ExportOptions& given, Target target) {
  OnnxExportOptions options;
  options.target = target;
  options.opset = static_cast<int>(given.opset);
  options.emulate = given.emulate;
  return network.to_onnx(options);
}

/// Prints and returns the operators that the engine computes in floats. Returns an empty list for a float
/// network.
nlohmann::ordered_json report_float_operators(Network& network, Target target, Output& output) {
  auto listed = nlohmann::ordered_json::array();
  // All operators of a float network are float operators, which needs no report.
  if (named_quantizers(network.module()).empty()) return listed;
  const auto floats = float_operators(network.module(), network.input_shape(), target);
  for (const auto& [path, op, reason] : floats)
    listed.push_back({{"path", path}, {"operator", op}, {"reason", reason}});
  const std::string engine = target == Target::tensorrt ? "TensorRT" : "ONNX Runtime";
  if (!floats.empty()) output.line(fmt::format("{} computes in floats: {}", engine, describe(floats)));
  return listed;
}

}  // namespace

/// Returns the model file. A model that may be too large for one file also has a data file. The limit allows
/// for 2-bit codes, which become bytes in ONNX.
std::vector<WrittenFile> onnx_files(const ExportOptions& options) {
  const std::string& path = options.output;
  std::error_code none;
  FQ_CHECK(!std::filesystem::is_directory(path, none), "export", "--output {} is a folder: name the file",
           path);
  std::vector<WrittenFile> files{{path, kind::onnx}};
  const auto bytes = std::filesystem::file_size(options.checkpoint, none);
  if (!none && bytes > onnx_inline_limit / 16) files.push_back({path + ".data", kind::onnx_data});
  return files;
}

ExportWriter convert_to_onnx(Network& network, const ExportOptions& options) {
  const Target target = chosen_target(options, network.module());
  return [network, target, path = options.output,
          model = onnx_model(network, options, target)](Output& output) mutable -> nlohmann::ordered_json {
    save_onnx(path, model);
    output.line(fmt::format("{} nodes for {} in {}: opset {}, IR version {}", model.nodes.size(),
                            name(target), path, model.opset, model.ir_version));
    return {{"files", {path}},
            {"target", name(target)},
            {"nodes", model.nodes.size()},
            {"opset", model.opset},
            {"ir_version", model.ir_version},
            {"float_operators", report_float_operators(network, target, output)}};
  };
}

}  // namespace fq::cli
