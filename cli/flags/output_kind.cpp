#include "fakequant/cli/flags/output_kind.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <new>
#include <optional>

#include "fakequant/cli/flags/json_kind.h"
#include "fakequant/cli/onnx_producer.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/detail/hdf5_reader.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/safetensors/file.h"
#include "fakequant/report/detail/picture.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHead = 4096;
constexpr const char* kForeign = "a file that fakequant does not write";

std::string head_of(const std::string& path) {
  std::string head(kHead, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file && errno == ENOMEM) throw std::bad_alloc();
  file.read(head.data(), std::streamsize(head.size()));
  head.resize(std::size_t(file.gcount()));
  return head;
}

std::string state_kind(const std::string& path) try {
  const std::string found = state_file_info(path).kind;
  if (found == "checkpoint") return kind::checkpoint;
  if (found == "calibration") return kind::calibration;
  if (found == "predictions") return kind::predictions;
  if (found == "scales") return kind::scales;
  return "a state file of kind '" + found + "'";
} catch (const Error&) {
  return "a damaged file of fakequant";
}

std::string data_set_kind(const std::string& path) try {
  const auto writer = fq::detail::Hdf5Reader(path).texts("/", "writer");
  const bool ours = writer == std::vector<std::string>{"fakequant dataset"};
  return ours ? kind::data_set : "an HDF5 file of another program, such as a data set";
} catch (const Error&) {
  return "a damaged HDF5 file";
}

/// Of exports, which have packed weights and their config beside them; someone else's model is another kind.
std::optional<std::string> safetensors_kind(const std::string& path) try {
  const SafetensorsFile file(path);
  const auto beside = [&](const char* name) {
    return json_kind((fs::path(path).parent_path() / name).string());
  };
  const bool ours = beside("hf_quant_config.json") == kind::modelopt_config ||
                    beside("config.json") == kind::compressed_config;
  const bool packed = std::ranges::any_of(
      file.entries(), [](const auto& entry) { return entry.name.ends_with(".weight_scale"); });
  return packed && ours ? kind::safetensors : "a safetensors file of another program";
} catch (const Error&) {
  return std::nullopt;
}

std::optional<std::string> onnx_kind(const std::string& path) {
  const auto producer = onnx_producer(path);
  if (!producer) return std::nullopt;
  return *producer == "fakequant" ? kind::onnx : "an ONNX model of another program";
}

/// What an exported model beside it reads: "a.onnx.data".
bool is_onnx_data(const fs::path& path) {
  std::error_code none;
  const fs::path model = fs::path(path).replace_extension();
  return path.extension() == ".data" && fs::is_regular_file(model, none) &&
         onnx_kind(model.string()) == kind::onnx;
}

bool is_page(const std::string& head) {
  return head.starts_with("<!doctype html>") &&
         head.find("<meta name=generator content=fakequant>") != std::string::npos;
}

}  // namespace

std::string output_kind(const std::string& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none) || fs::file_size(path, none) == 0) return "";
  const std::string head = head_of(path);
  if (head.starts_with("\x89"
                       "FQS\r\n"))
    return state_kind(path);
  if (head.starts_with("\x89"
                       "HDF\r\n"))
    return data_set_kind(path);
  if (head.starts_with("TRT-")) return kind::tensorrt_cache;
  if (is_page(head)) return kind::page;
  if (head.starts_with("\x89PNG") && head.find(kPngSoftware) != head.npos) return kind::contact_sheet;
  if (head.starts_with("GGUF"))
    return head.find("general.quantized_by") != head.npos && head.find("fakequant") != head.npos
               ? kind::gguf
               : "a GGUF file of another program";
  if (head.size() >= 8 && head.substr(4, 2) == "ET") return kind::executorch;
  if (head.starts_with('{'))
    return json_kind(path).value_or("a JSON or text file that fakequant did not write");
  if (const auto found = safetensors_kind(path)) return *found;
  if (const auto found = onnx_kind(path)) return *found;
  if (is_onnx_data(path)) return kind::onnx_data;
  const std::string other = fq::detail::file_kind(path);
  return other.empty() ? kForeign : other;
}

}  // namespace fq::cli
