#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/cli/command.h"
#include "fakequant/cli/commands/export_formats.h"
#include "fakequant/cli/data.h"
#include "fakequant/cli/evaluation.h"
#include "fakequant/cli/flags/flag_groups.h"
#include "fakequant/cli/flags/planned_files.h"
#include "fakequant/cli/folding.h"
#include "fakequant/cli/initial_weights.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/train/loop/checkpoint.h"

namespace fq::cli {
namespace {

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const ExportFormat& format : export_formats()) names.emplace_back(format.name);
  return names;
}

const ExportFormat& chosen_format(const Flags& flags) {
  return *std::ranges::find(export_formats(), flags.choice("format", format_names()), &ExportFormat::name);
}

std::string format_help() {
  std::string text = "what to write, and what --output is for it:";
  for (const ExportFormat& format : export_formats())
    text += fmt::format("\n{}: {}", format.name, format.help);
  return text;
}

void check_exports(const ExportFormat& format, const Network& network, const Flags& flags) {
  FQ_CHECK(network.quantized() || format.takes_float, "export",
           "{} has no quantizers: run fakequant calibrate first", flags.text("checkpoint"));
}

/// What comes before it is written: batch norms are folded, and quantizers calibrated.
void check_format(const ExportFormat& format, Network& network, const Flags& flags,
                  const PlannedFiles& planned) {
  const std::string path = flags.text("checkpoint");
  check_exports(format, network, flags);
  if (planned.holds(path)) stand_in_ranges(network);
  check_calibrated(network, "export");
  if (network.live_batch_norms() > 0) {
    check_not_compressed(network, "export", path);
    (void)network.fold();
  }
  format.check(network, flags);
}

Network load_for(const ExportFormat& format, const Flags& flags, Output& output) {
  Network network = load_network(flags.required("checkpoint"));
  check_exports(format, network, flags);
  check_calibrated(network, "export");
  if (network.live_batch_norms() > 0) check_not_compressed(network, "export", flags.text("checkpoint"));
  fold_first(network, output);
  return network;
}

}  // namespace

const std::vector<ExportFormat>& export_formats() {
  static const std::vector<ExportFormat> table = {
      {"scales", "FOLDER/scales.json and .h5, or PREFIX_scales.json and .h5", scales_files, false,
       export_scales, check_scales},
      {"onnx", "FILE.onnx, a graph of QuantizeLinear and DequantizeLinear nodes", onnx_files, true,
       export_onnx_file, check_onnx_file},
      {"trt-cache", "FILE, or FOLDER/calibration.cache", tensorrt_cache_files, false, export_tensorrt_cache,
       check_tensorrt_cache},
      {"safetensors", "FILE, or FOLDER/model.safetensors; hf_quant_config.json beside it", safetensors_files,
       false, export_safetensors, check_safetensors},
      {"compressed-tensors",
       "FILE, or FOLDER/model.safetensors, of the names that vLLM reads; config.json beside it",
       compressed_tensors_files, false, export_compressed_tensors, check_compressed_tensors},
      {"gguf",
       "FILE, or FOLDER/model.gguf, for llama.cpp: the codes of --target ggml, everything else in floats",
       gguf_files, true, export_gguf, check_gguf},
      {"executorch",
       "FILE, or FOLDER/model.pte, for XNNPACK: a program for a batch of one, by a Python with ExecuTorch",
       executorch_files, true, export_executorch, check_executorch},
  };
  return table;
}

std::string file_for(const Flags& flags, const std::string& name) {
  namespace fs = std::filesystem;
  const std::string output = flags.text("output");
  std::error_code error;
  const bool folder = output.ends_with('/') || fs::is_directory(output, error);
  return folder ? (fs::path(output) / name).lexically_normal().string() : output;
}

void check_several(const Flags& flags) {
  const std::string output = flags.text("output");
  std::error_code none;
  FQ_CHECK(has_files_beside(output) || std::filesystem::is_directory(output, none), "export",
           "--output {} is no file, and --format {} writes two: name a folder, or the beginning of names",
           output, flags.text("format"));
}

WrittenFile written_for(const Flags& flags, const std::string& name, const char* kind) {
  return {file_for(flags, name), kind, flags.text("output").ends_with('/')};
}

FlagSet export_flags() {
  static const std::string formats = format_help();
  FlagSet set("export", "Writes a checkpoint in a form for engines: scales, graphs, packed weights.",
              "CHECKPOINT -o OUTPUT [flags]");
  set.group("Files")
      .argument("checkpoint", "FILE", "a calibrated checkpoint")
      .output("output,o", "OUTPUT", "a file, a folder, or the beginning of names, by the format", ".",
              [](const Flags& flags) { return chosen_format(flags).files(flags); })
      .value("format,f", "NAME", formats.c_str(), std::string(export_formats().front().name));
  set.need({"target", "opset", "emulate"}, "format", {"onnx"})
      .need({"float-type"}, "format", {"gguf"})
      .need({"engines", "python", "timeout"}, "format", {"executorch"})
      .need({"calibrator", "trt-version"}, "format", {"trt-cache"});
  set.need({"split", "batch"}, "data");
  add_data_flags(set, "test");
  set.group("ONNX")
      .value("target", "NAME",
             "ort or tensorrt: the engine whose rules the graph follows; the model's own where left out", "")
      .value("opset", "N",
             "operator set, up to 24, from what the graph needs: 13 for 8-bit integers, 19 for FP8, 21 for 4 "
             "bits and "
             "blocks, 23 for FP4, 24 for E8M0 scales; 0: that",
             "0")
      .toggle("emulate", "write types that ONNX Runtime has no kernels for as others of equal values");
  set.group("GGUF").value("float-type", "NAME",
                          "f32 or f16: what matrices that are not quantized are kept as", "f32");
  set.group("ExecuTorch")
      .value("engines", "FOLDER",
             "where ExecuTorch is, and is installed on demand (default: FAKEQUANT_ENGINES, or "
             "fakequant/engines in the user's folder for caches)")
      .value("python", "FILE",
             "a Python 3 with executorch, torchao, torch and h5py, in place of that (default: "
             "FAKEQUANT_PYTHON)")
      .value("timeout", "SECONDS", "after which that Python is ended; 0: never", "3600");
  set.group("TensorRT cache")
      .value("calibrator", "NAME", "whose cache it passes for: entropy (what trtexec takes) or minmax",
             "entropy")
      .value("trt-version", "NUMBER", "of the header line: 8601 is TensorRT 8.6.1", "8601");
  add_general_flags(set);
  return set;
}

void check_export(const Flags& flags, PlannedFiles& planned) {
  const ExportFormat& format = chosen_format(flags);
  auto network = planned.network(flags.required("checkpoint"));
  if (network) check_format(format, *network, flags, planned);
  if (flags.given("data"))
    (void)open_data(flags, flags.text("split"), network ? network->classes() : 0, false);
  planned.add(flags.text("output"));
}

nlohmann::ordered_json export_network(const Flags& flags, Output& output) {
  apply_general_flags(flags);
  const ExportFormat& format = chosen_format(flags);
  Network network = load_for(format, flags, output);
  nlohmann::ordered_json result{{"format", format.name}};
  result.update(format.write(network, flags, output));
  return result;
}

}  // namespace fq::cli
