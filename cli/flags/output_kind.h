#pragma once

/// Kinds of existing files, detected from their content. A command overwrites only files of its own kinds.

#include <string>

namespace fq::cli::kind {

inline constexpr const char* checkpoint = "a checkpoint";
inline constexpr const char* calibration = "a calibration state";
inline constexpr const char* predictions = "predictions";
inline constexpr const char* scales = "scales (HDF5)";
inline constexpr const char* scales_json = "scales (JSON)";
inline constexpr const char* plan = "a plan";
inline constexpr const char* sensitivity = "a table of sensitivities";
inline constexpr const char* report = "a report of a recipe";
inline constexpr const char* trace = "a trace of --profile";
inline constexpr const char* page = "a page of --html";
inline constexpr const char* data_set = "a data set of fakequant dataset";
inline constexpr const char* contact_sheet = "a picture of dataset show";
inline constexpr const char* onnx = "an exported ONNX model";
inline constexpr const char* onnx_data = "data of an exported ONNX model";
inline constexpr const char* safetensors = "an exported safetensors file";
inline constexpr const char* modelopt_config = "hf_quant_config.json of an export";
inline constexpr const char* compressed_config = "config.json of an export";
inline constexpr const char* gguf = "an exported GGUF file";
inline constexpr const char* executorch = "an ExecuTorch program";
inline constexpr const char* tensorrt_cache = "a TensorRT calibration cache";

}  // namespace fq::cli::kind

namespace fq::cli {

/// Returns one of the kinds above, or a description for messages: "an HDF5 file of another program", "a PNG
/// image", "a file that fakequant does not write". Returns an empty text for an empty file and for a path
/// that is no regular file. Reads only the necessary bytes and throws nothing.
[[nodiscard]] std::string output_kind(const std::string& path);

}  // namespace fq::cli
