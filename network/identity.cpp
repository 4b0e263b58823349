#include "fakequant/network/identity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kIdentity = "identity";

void check_keys(const json& object, const std::string& place, const std::vector<std::string>& allowed) {
  FQ_CHECK(object.is_object(), kIdentity, "{}: is {}, an object is required", place, object.type_name());
  for (const auto& [key, value] : object.items())
    FQ_CHECK(std::ranges::find(allowed, key) != allowed.end(), kIdentity, "{}: has an unknown key '{}'{}",
             place, key, detail::did_you_mean(key, allowed));
}

/// Returns the member as T, or `fallback` without it. Throws ArgumentError for another type.
template <class T>
T member(const json& object, const char* key, T fallback) {
  if (!object.contains(key)) return fallback;
  try {
    return object.at(key).get<T>();
  } catch (const json::exception& error) {
    throw ArgumentError(fmt::format("[{}] {}: {}", kIdentity, key, error.what()));
  }
}

const json& required(const json& object, const char* key) {
  FQ_CHECK(object.contains(key), kIdentity, "{}: is missing", key);
  return object.at(key);
}

/// Reads a list of numbers, or one number as a list of one.
std::vector<double> numbers(const json& object, const char* key) {
  if (object.contains(key) && object.at(key).is_number()) return {object.at(key).get<double>()};
  return member(object, key, std::vector<double>{});
}

SampleNotes notes_from_json(const json& object) {
  check_keys(object, "inputs", {"columns", "scale", "mean", "std"});
  return {.columns = member(object, "columns", std::vector<std::string>{}),
          .scale = member(object, "scale", 0.0),
          .mean = numbers(object, "mean"),
          .deviation = numbers(object, "std")};
}

json notes_to_json(const SampleNotes& notes) {
  json out = json::object();
  if (!notes.columns.empty()) out["columns"] = notes.columns;
  if (notes.scale > 0) out["scale"] = notes.scale;
  if (!notes.mean.empty()) out["mean"] = notes.mean;
  if (!notes.deviation.empty()) out["std"] = notes.deviation;
  return out;
}

TaskText task_from_json(const json& object) {
  check_keys(object, "task", {"loss", "metrics"});
  TaskText out;
  if (object.contains("loss")) out.loss = member(object, "loss", std::string());
  if (object.contains("metrics")) out.metrics = member(object, "metrics", std::string());
  return out;
}

json task_to_json(const TaskText& task) {
  json out = json::object();
  if (task.loss) out["loss"] = *task.loss;
  if (task.metrics) out["metrics"] = *task.metrics;
  return out;
}

/// Throws ArgumentError for a config whose preset is no text, which readers of the identity rely on.
std::string quantization_from_json(const json& config) {
  if (config.is_null()) return {};
  if (config.is_object()) (void)member(config, "preset", std::string());
  return config.dump();
}

/// Replaces objects of rules by lists.
void list_rules(ordered_json& config) {
  for (const char* key : {"quant_cfg", "rules"}) {
    if (!config.contains(key) || !config[key].is_object()) continue;
    ordered_json list = ordered_json::array();
    for (const auto& [pattern, fields] : config[key].items()) {
      ordered_json entry = key == std::string("rules") ? fields : ordered_json{{pattern, fields}};
      if (key == std::string("rules")) entry["pattern"] = pattern;
      list.insert(pattern == "default" ? list.begin() : list.end(), std::move(entry));
    }
    config[key] = std::move(list);
  }
}

constexpr double kSame = 1e-4;  // relative: attributes are stored as f32 and with few digits

bool has_scale(const SampleNotes& notes) {
  return notes.scale > 0 || !notes.mean.empty() || !notes.deviation.empty();
}

/// A list of one number counts for all channels.
bool same_numbers(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() != y.size() && x.size() != 1 && y.size() != 1) return false;
  for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i) {
    const double u = x[x.size() == 1 ? 0 : i], v = y[y.size() == 1 ? 0 : i];
    if (!(std::abs(u - v) <= kSame * std::max(std::abs(u), std::abs(v)))) return false;
  }
  return true;
}

std::string first_numbers(const std::vector<double>& all) {
  return fmt::format("{:.6g}{}",
                     fmt::join(all.begin(), all.begin() + std::min<std::ptrdiff_t>(std::ssize(all), 4), ", "),
                     all.size() > 4 ? ", .." : "");
}

/// The scale, mean and deviation of notes, with the values of data that says nothing of one.
std::array<std::pair<const char*, std::vector<double>>, 3> scales(const SampleNotes& notes) {
  const auto given_or = [](const std::vector<double>& given, double standard) {
    return given.empty() ? std::vector{standard} : given;
  };
  return {{{"scale", {notes.scale > 0 ? notes.scale : 1}},
           {"mean", given_or(notes.mean, 0)},
           {"std", given_or(notes.deviation, 1)}}};
}

std::string compare_scales(const SampleNotes& own, const SampleNotes& given, std::string_view function) {
  if (!has_scale(own) || !has_scale(given)) return {};
  const auto here = scales(own), there = scales(given);
  for (std::size_t i = 0; i < here.size(); ++i)
    if (!same_numbers(here[i].second, there[i].second))
      return fmt::format(
          "[{}] the data has a {} of {}, what the network was trained on {}: make the data again "
          "with that data set as --like, or its numbers mean something else here",
          function, here[i].first, first_numbers(there[i].second), first_numbers(here[i].second));
  return {};
}

void check_columns(const std::vector<std::string>& own, const std::vector<std::string>& given,
                   std::string_view function) {
  if (own.empty() || given.empty() || own == given) return;
  const auto [a, b] = std::ranges::mismatch(own, given);
  const auto name = [](const auto& names, auto at) {
    return at == names.end() ? std::string("nothing") : fmt::format("'{}'", detail::one_line_name(*at));
  };
  FQ_CHECK(
      false, function,
      "column {} of the data is {}, of what the network was trained on {}: make the data again with that "
      "data set as --like, or by --columns",
      a - own.begin(), name(given, b), name(own, a));
}

}  // namespace

Identity Identity::from_json(const nlohmann::json& json) {
  check_keys(json, "model",
             {"model", "sample_shape", "classes", "dense", "folded", "quantization", "class_names",
              "tokenizer", "inputs", "task"});
  (void)required(json, "folded");
  const nlohmann::json none = nlohmann::json::object();
  Identity out{.model = ModelSpec::parse(required(json, "model").dump()),
               .sample_shape = detail::whole_values<std::int64_t>(required(json, "sample_shape")),
               .classes = detail::whole_value<std::int64_t>(required(json, "classes")),
               .dense = member(json, "dense", false),
               .folded = member(json, "folded", false),
               .quantization = quantization_from_json(required(json, "quantization")),
               .class_names = member(json, "class_names", std::vector<std::string>{}),
               .tokenizer = member(json, "tokenizer", std::string()),
               .inputs = notes_from_json(json.value("inputs", none)),
               .task = task_from_json(json.value("task", none))};
  FQ_CHECK(out.class_names.empty() || std::ssize(out.class_names) == out.classes, kIdentity,
           "class_names: {} names are given for {} classes", out.class_names.size(), out.classes);
  return out;
}

json Identity::to_json() const {
  json out{{"model", detail::parse_json<json>(model.text())},
           {"sample_shape", sample_shape},
           {"classes", classes},
           {"folded", folded},
           {"quantization", quantized() ? detail::parse_json<json>(quantization) : json()}};
  if (dense) out["dense"] = true;
  if (!class_names.empty()) out["class_names"] = class_names;
  if (!tokenizer.empty()) out["tokenizer"] = tokenizer;
  if (auto notes = notes_to_json(inputs); !notes.empty()) out["inputs"] = std::move(notes);
  if (auto words = task_to_json(task); !words.empty()) out["task"] = std::move(words);
  return out;
}

QuantConfig Identity::config() const {
  FQ_CHECK(quantized(), kIdentity, "quantization: the network has none. Quantize the network first");
  return QuantConfig::from_json(detail::parse_json<ordered_json>(quantization));
}

std::string Identity::preset() const {
  if (!quantized()) return {};
  const json config = detail::parse_json<json>(quantization);
  return config.is_object() ? config.value("preset", std::string()) : std::string();
}

void Identity::set_quantization(ordered_json config) {
  list_rules(config);
  quantization = json(config).dump();
}

std::string check_sample_notes(const SampleNotes& own, const Dataset& data, std::string_view function) {
  check_columns(own.columns, data.sample_notes().columns, function);
  return compare_scales(own, data.sample_notes(), function);
}

std::string take_sample_notes(SampleNotes& own, const Dataset& data, std::string_view function) {
  std::string warning = check_sample_notes(own, data, function);
  const SampleNotes& given = data.sample_notes();
  if (own.columns.empty()) own.columns = given.columns;
  if (!has_scale(own))
    std::tie(own.scale, own.mean, own.deviation) = std::tie(given.scale, given.mean, given.deviation);
  return warning;
}

}  // namespace fq
