#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/export_formats.h"
#include "fakequant/core/check.h"
#include "fakequant/export/onnx/exporter.h"
#include "fakequant/export/onnx/file.h"
#include "fakequant/layers/quantize.h"

namespace fq::cli {
namespace {

Target chosen_target(const Flags& flags, Module& model) {
  if (flags.given("target"))
    return flags.choice("target", {"ort", "tensorrt"}) == "ort" ? Target::ort : Target::tensorrt;
  return target_of(model) == Target::tensorrt ? Target::tensorrt : Target::ort;
}

}  // namespace

nlohmann::ordered_json export_onnx_file(Network& network, const Flags& flags, Output& output) {
  const std::string path = flags.text("output");
  FQ_CHECK(!std::filesystem::is_directory(path), "export", "--output {} is a folder: name the file", path);
  OnnxExportOptions options;
  options.target = chosen_target(flags, *network.module);
  options.opset = static_cast<int>(flags.integer("opset", 0, 1000));
  options.emulate = flags.on("emulate");
  const Shape batch = network.input_shape();
  const OnnxModel model = export_onnx(*network.module, {batch.begin() + 1, batch.end()}, options);
  save_onnx(path, model);
  output.line(fmt::format("{} nodes for {} in {}: opset {}, IR version {}", model.nodes.size(),
                          name(options.target), path, model.opset, model.ir_version));
  return {{"files", {path}},
          {"target", name(options.target)},
          {"nodes", model.nodes.size()},
          {"opset", model.opset},
          {"ir_version", model.ir_version}};
}

}  // namespace fq::cli
