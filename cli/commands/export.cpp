#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::cli {
namespace {

NamedChoices<const ExportFormat*> format_choices() {
  NamedChoices<const ExportFormat*> choices;
  for (const ExportFormat& format : export_formats()) choices.emplace_back(format.name, &format);
  return choices;
}

std::string format_help() {
  std::string text = "output format, and the meaning of --output:";
  for (const ExportFormat& format : export_formats())
    text += fmt::format("\n{}: {}", format.name, format.help);
  return text;
}

void add_format_flags(FlagSet& set, ExportOptions& options) {
  set.group("ONNX")
      .choice(options.target, "target", "NAME", {{"ort", Target::ort}, {"tensorrt", Target::tensorrt}},
              "ort or tensorrt: the engine whose rules the graph follows (default: of the model)")
      .value(
          options.opset, "opset", "N", {0, 1000},
          "operator set, up to 24; 0: the smallest that the graph needs: 13 for 8-bit integers, 19 for FP8, "
          "21 for 4 bits and blocks, 23 for FP4, 24 for E8M0 scales")
      .toggle(options.emulate, "emulate",
              "write types without kernels in ONNX Runtime as other types of equal values");
  set.group("GGUF").choice(options.f16, "float-type", "NAME", {{"f32", false}, {"f16", true}},
                           "f32 or f16: type of matrices that are not quantized");
  set.group("ExecuTorch")
      .value(options.home.engines, "engines", "FOLDER",
             "folder of ExecuTorch, which is installed on demand (default: FAKEQUANT_ENGINES, or "
             "fakequant/engines in the user's folder for caches)")
      .value(options.home.python, "python", "FILE",
             "a Python 3 with executorch, torchao, torch and h5py, instead of --engines (default: "
             "FAKEQUANT_PYTHON)")
      .value(options.timeout, "timeout", "SECONDS", {0, 1e9}, "time limit of that Python; 0: none");
  set.group("TensorRT cache")
      .choice(options.minmax, "calibrator", "NAME", {{"entropy", false}, {"minmax", true}},
              "calibrator in the header line: entropy (what trtexec takes) or minmax")
      .value(options.trt_version, "trt-version", "NUMBER", {1, 99'999'999},
             "version in the header line: 8601 is TensorRT 8.6.1");
}

FlagSet export_flags(ExportOptions& options) {
  // The default must be set before the flags are bound, because the help prints the values of the members.
  options.format = &export_formats().front();
  FlagSet set("export", "Writes a checkpoint in a form for engines: scales, graphs, packed weights.",
              "CHECKPOINT -o OUTPUT [flags]");
  set.group("Files")
      .argument(options.checkpoint, "checkpoint", "FILE", "a calibrated checkpoint")
      .required()
      .output(options.output, "output,o", "OUTPUT",
              "a file, a folder, or the beginning of names, by the format",
              // The files depend on --format, which is parsed only after this function. `options` outlives
              // the set.
              [&options] { return options.format->files(options); })
      .choice(options.format, "format,f", "NAME", format_choices(), format_help())
      .need({"target", "opset", "emulate"}, "format", {"onnx"})
      .need({"float-type"}, "format", {"gguf"})
      .need({"engines", "python", "timeout"}, "format", {"executorch"})
      .need({"calibrator", "trt-version"}, "format", {"trt-cache"})
      .need({"split", "batch"}, "data");
  add_data_flags(set, options.data, false);
  add_format_flags(set, options);
  add_general_flags(set, options.general);
  return set;
}

/// Folds batch norms, as an engine does.
void plan_folding(Network& network, const std::string& checkpoint, Plan& plan) {
  if (network.live_batch_norms() == 0) return;
  // Folding changes float weights, and compressed weights are codes.
  check_not_compressed(network, "export", checkpoint);
  const std::size_t count = network.fold();
  if (count == 0) return;
  plan.add("fold batch normalisation", [count](Output& output, nlohmann::ordered_json&) {
    output.line(fmt::format("{} batch norms folded first: fakequant fold prints the change", count));
  });
}

Plan plan_export(const ExportOptions& options, PlannedFiles& planned) {
  const ExportFormat& format = *options.format;
  auto network = planned.network(options.checkpoint);
  Plan plan;
  if (network) {
    FQ_CHECK(network->quantized() || format.takes_float, "export",
             "{} has no quantizers: run fakequant calibrate first", options.checkpoint);
    // A checkpoint of an earlier phase has no ranges yet. Any range serves for checking operators and
    // formats.
    if (planned.holds(options.checkpoint)) stand_in_ranges(*network);
    check_calibrated(*network, "export");
    plan_folding(*network, options.checkpoint, plan);
    plan.add(fmt::format("write {} as {} to {}", options.checkpoint, format.name, options.output),
             [&format, write = format.convert(*network, options)](Output& output, auto& result) {
               result["format"] = format.name;
               result.update(write(output));
             });
  }
  // Also without a network: later phases may read the file.
  planned.add(options.output);
  return plan;
}

}  // namespace

const std::vector<ExportFormat>& export_formats() {
  static const std::vector<ExportFormat> table = {
      {"scales", "FOLDER/scales.json and .h5, or PREFIX_scales.json and .h5", scales_files, false,
       convert_to_scales},
      {"onnx", "FILE.onnx, a graph of QuantizeLinear and DequantizeLinear nodes", onnx_files, true,
       convert_to_onnx},
      {"trt-cache", "FILE, or FOLDER/calibration.cache", tensorrt_cache_files, false,
       convert_to_tensorrt_cache},
      {"safetensors", "FILE, or FOLDER/model.safetensors; with hf_quant_config.json in the same folder",
       safetensors_files, false, convert_to_safetensors},
      {"compressed-tensors",
       "FILE, or FOLDER/model.safetensors, with the names that vLLM reads; with config.json in the same "
       "folder",
       compressed_tensors_files, false, convert_to_compressed_tensors},
      {"gguf",
       "FILE, or FOLDER/model.gguf, for llama.cpp: the codes of --target ggml, everything else in floats",
       gguf_files, true, convert_to_gguf},
      {"executorch",
       "FILE, or FOLDER/model.pte, for XNNPACK: a program for a batch of one, by a Python with ExecuTorch",
       executorch_files, true, convert_to_executorch},
  };
  return table;
}

std::string output_file(const ExportOptions& options, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code error;
  // A missing folder is recognized by its slash only.
  const bool folder = options.output.ends_with('/') || fs::is_directory(options.output, error);
  return folder ? (fs::path(options.output) / name).lexically_normal().string() : options.output;
}

void check_several(const ExportOptions& options) {
  std::error_code none;
  FQ_CHECK(allows_sibling_files(options.output) || std::filesystem::is_directory(options.output, none),
           "export",
           "--output {} is no file, and --format {} writes two: name a folder, or the beginning of names",
           options.output, options.format->name);
}

WrittenFile written_file(const ExportOptions& options, const std::string& name, const char* kind) {
  return {output_file(options, name), kind, options.output.ends_with('/')};
}

Command export_command() {
  return {"export", "write scales, graphs or packed weights for an engine", typed(export_flags, plan_export),
          true};
}

}  // namespace fq::cli
