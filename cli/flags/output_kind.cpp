#include "fakequant/cli/flags/output_kind.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/detail/hdf5_reader.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/export/safetensors/file.h"
#include "fakequant/report/detail/picture.h"

namespace fq::cli {
namespace {

// Field numbers of ModelProto in onnx.proto: producer_name and graph.
constexpr std::uint64_t kProducer = 2, kGraph = 7;
constexpr std::uint64_t kFields[] = {1, 2, 3, 4, 5, 6, 7, 8, 14, 20, 25, 26};  // of ModelProto
constexpr std::uint64_t kVarint = 0, kBytes = 2;                               // wire types
constexpr std::uint64_t kLongestName = 4096;

/// Reads the fields of a protobuf message in order. Throws FileError at the end of the file.
class Fields {
 public:
  explicit Fields(const std::string& path) : file_(path) {}

  [[nodiscard]] bool more() const { return at_ < file_.size(); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    // A varint has 7 bits per byte, the lowest first. The high bit says that another byte follows.
    for (int shift = 0; shift < 64; shift += 7) {
      unsigned char byte = 0;
      file_.read(at_++, &byte, 1);
      value |= std::uint64_t(byte & 0x7fu) << shift;
      if (byte < 0x80) return value;
    }
    throw FileError(file_.path(), "", "[onnx_producer] a number is too long");
  }

  /// Skips a field of bytes. With `read`, returns its first kLongestName bytes.
  std::string bytes(bool read) {
    const std::uint64_t length = varint();
    // The comparison of the rest of the file cannot overflow, unlike at_ + length.
    if (length > std::uint64_t(file_.size() - at_))
      throw FileError(file_.path(), "", "[onnx_producer] it ends too early");
    std::string text(read ? std::min(length, kLongestName) : 0, '\0');
    if (!text.empty()) file_.read(at_, text.data(), text.size());
    at_ += std::int64_t(length);
    return text;
  }

 private:
  fq::detail::FileReader file_;
  std::int64_t at_ = 0;
};

/// Returns the producer that a complete ONNX model names, which may be empty. Returns nothing for other
/// files. Skips the fields of the outermost message and does not read the graph.
std::optional<std::string> onnx_producer(const std::string& path) try {
  Fields fields(path);
  std::string producer;
  bool graph = false;
  while (fields.more()) {
    const std::uint64_t tag = fields.varint(), field = tag >> 3, type = tag & 7;
    // Any bytes can look like protobuf. An unknown field or another wire type excludes an ONNX model.
    if (std::ranges::find(kFields, field) == std::end(kFields) || (type != kVarint && type != kBytes))
      return std::nullopt;
    graph = graph || field == kGraph;
    if (type == kVarint)
      (void)fields.varint();
    else if (const std::string text = fields.bytes(field == kProducer); field == kProducer)
      producer = text;
  }
  return graph ? std::optional(producer) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

using nlohmann::json;

bool says(const json& object, const char* key, const char* value) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() && *found == value;
}

// Traces and reports have no key that names their program, so their exact set of keys must do.
bool has_just(const json& object, const char* a, const char* b) {
  return object.size() == 2 && object.contains(a) && object.contains(b);
}

bool is_config_of_export(const json& object, const char* quantization) {
  return object.contains("producer") && object["producer"].is_object() &&
         says(object["producer"], "name", "fakequant") && object.contains(quantization);
}

/// Returns the first two levels of a JSON file.
json outline(const std::string& path) {
  std::ifstream file(path);
  // Streams report exhausted memory like a missing file. It must not count as a foreign file.
  if (!file && errno == ENOMEM) throw std::bad_alloc();
  // Trace files are large. The parser callback drops their events, so that memory stays small.
  const auto keep = [](int depth, json::parse_event_t, json&) { return depth <= 2; };
  return json::parse(file, keep, false);
}

/// Returns the kind of a JSON file of fakequant; empty for other files and invalid JSON. Values below the
/// second level are parsed but not stored.
std::optional<std::string> json_kind(const std::string& path) {
  const json object = outline(path);
  if (!object.is_object()) return std::nullopt;
  if (says(object, "format", "fakequant-scales")) return kind::scales_json;
  if (says(object, "kind", "fakequant-plan")) return kind::plan;
  if (says(object, "kind", "fakequant-sensitivity")) return kind::sensitivity;
  if (is_config_of_export(object, "quantization")) return kind::modelopt_config;
  if (is_config_of_export(object, "quantization_config")) return kind::compressed_config;
  if (has_just(object, "displayTimeUnit", "traceEvents")) return kind::trace;
  if (has_just(object, "phases", "seconds")) return kind::report;
  return std::nullopt;
}

namespace fs = std::filesystem;

constexpr std::size_t kHead = 4096;
constexpr const char* kForeign = "a file that fakequant does not write";

std::string read_head(const std::string& path) {
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
  return ours ? kind::data_set : "an HDF5 file of another program, for example a data set";
} catch (const Error&) {
  return "a damaged HDF5 file";
}

/// Returns the kind of a safetensors file. An export has packed weights, with their config in the same
/// folder. Other files belong to another program.
std::optional<std::string> safetensors_kind(const std::string& path) try {
  const SafetensorsFile file(path);
  const auto sibling_kind = [&](const char* name) {
    return json_kind((fs::path(path).parent_path() / name).string());
  };
  const bool ours = sibling_kind("hf_quant_config.json") == kind::modelopt_config ||
                    sibling_kind("config.json") == kind::compressed_config;
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

/// Returns true for the data file of an exported model: "a.onnx.data".
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
  // Empty files, for example of mktemp, may be replaced.
  if (!fs::is_regular_file(path, none) || fs::file_size(path, none) == 0) return "";
  const std::string head = read_head(path);
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
  // Flatbuffers have their identifier at byte 4: "ET12" of ExecuTorch.
  if (head.size() >= 8 && head.substr(4, 2) == "ET") return kind::executorch;
  if (head.starts_with('{'))
    return json_kind(path).value_or("a JSON or text file that fakequant did not write");
  // From signatures to guesses: safetensors and ONNX have no signature and are read by their structure.
  if (const auto found = safetensors_kind(path)) return *found;
  if (const auto found = onnx_kind(path)) return *found;
  if (is_onnx_data(path)) return kind::onnx_data;
  const std::string other = fq::detail::file_kind(path);
  return other.empty() ? kForeign : other;
}

}  // namespace fq::cli
