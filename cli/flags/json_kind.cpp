#include "fakequant/cli/flags/json_kind.h"

#include <cerrno>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>

#include "fakequant/cli/flags/output_kind.h"

namespace fq::cli {
namespace {

using nlohmann::json;

bool says(const json& object, const char* key, const char* value) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() && *found == value;
}

bool has_just(const json& object, const char* a, const char* b) {
  return object.size() == 2 && object.contains(a) && object.contains(b);
}

bool is_config_of_export(const json& object, const char* quantization) {
  return object.contains("producer") && object["producer"].is_object() &&
         says(object["producer"], "name", "fakequant") && object.contains(quantization);
}

/// The first two levels.
json outline(const std::string& path) {
  std::ifstream file(path);
  if (!file && errno == ENOMEM) throw std::bad_alloc();
  const auto keep = [](int depth, json::parse_event_t, json&) { return depth <= 2; };
  return json::parse(file, keep, false);
}

}  // namespace

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

}  // namespace fq::cli
