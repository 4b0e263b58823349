#include "fakequant/report/detail/runs/run_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace fq::detail {
namespace {

using nlohmann::ordered_json;

std::optional<double> optional_number_field(const ordered_json& line, const std::string& key) {
  const double value = number_field(line, key);
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

std::string text_field(const ordered_json& config, const char* key, const char* otherwise = "") {
  return config.contains(key) && config[key].is_string() ? config[key].get<std::string>() : otherwise;
}

/// Returns the best epoch in validation, else the last one; null without an epoch.
const ordered_json* best_or_last_epoch(const RunRecord& record) {
  const ordered_json* best = nullptr;
  for (const auto& line : record.lines)
    if (line["event"] == "epoch" && line.value("best", false)) best = &line;
  return best == nullptr ? record.last("epoch") : best;
}

// Returns the preset of the command line, else the preset that the checkpoint's config names, else
// "quantized".
std::string format_name(const ordered_json& config) {
  const bool quantized = config.contains("quantization") && !config["quantization"].is_null();
  if (!quantized) return "float";
  const std::string preset = text_field(config, "preset");
  return preset.empty() ? config["quantization"].is_object()
                              ? text_field(config["quantization"], "preset", "quantized")
                              : "quantized"
                        : preset;
}

/// Returns the defaults of the flags. The settings have the values that the format or the optimizer chose.
ordered_json flag_defaults(const ordered_json& config) {
  constexpr std::array<std::pair<const char*, const char*>, 5> kChosen{{{"lr", "learning_rate"},
                                                                        {"amax", "amax_mode"},
                                                                        {"amax-gradient", "amax_gradient"},
                                                                        {"amax-lr", "amax_rate"},
                                                                        {"temperature", "temperature"}}};
  ordered_json out = config.value("defaults", ordered_json::object());
  if (!config.contains("settings") || !config["settings"].is_object()) return out;
  for (const auto& [flag, setting] : kChosen)
    if (!out.contains(flag) && config["settings"].contains(setting)) out[flag] = config["settings"][setting];
  return out;
}

/// Returns true for equal texts and for equal numbers, "0.1" and "1e-1".
bool same_value(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto x = ordered_json::parse(a, nullptr, false), y = ordered_json::parse(b, nullptr, false);
  return x.is_number() && y.is_number() && x.get<double>() == y.get<double>();
}

}  // namespace

RunSummary summarize_run(const std::string& name, const ordered_json& config, const RunRecord& record) {
  RunSummary out{.name = name,
                 .command = text_field(config, "command"),
                 .model = text_field(config, "model"),
                 .format = format_name(config),
                 .state = "unfinished",
                 .given = config["given"],
                 .defaults = flag_defaults(config)};
  if (const auto* epoch = best_or_last_epoch(record)) {
    out.validated = epoch->contains("val_loss");
    out.accuracy = optional_number_field(*epoch, out.validated ? "val_accuracy" : "accuracy");
    out.loss = optional_number_field(*epoch, out.validated ? "val_loss" : "loss");
  }
  const auto* end = record.last("end");
  if (end == nullptr) return out;
  out.state = text_field(*end, "state", "done");
  if (!end->contains("result") || !(*end)["result"].is_object()) return out;
  const auto& result = (*end)["result"];
  if (const auto bytes = optional_number_field(result, "weight_bytes"))
    out.bytes = static_cast<std::int64_t>(*bytes);
  if (const auto parameters = optional_number_field(config, "parameters");
      parameters && out.bytes && *parameters > 0)
    // Mean over all parameters. Float parameters count with 32 bits.
    out.bits = 8 * static_cast<double>(*out.bytes) / *parameters;
  out.ms_per_step = optional_number_field(result, "ms_per_step");
  out.seconds = optional_number_field(result, "seconds");
  return out;
}

std::string flag_text(const RunSummary& run, const std::string& flag) {
  const auto& flags = run.given.contains(flag) ? run.given : run.defaults;
  // A toggle that is off has no text, like a flag that the command does not have.
  if (!flags.contains(flag) || flags[flag] == false) return {};
  const auto& value = flags[flag];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> differing_flags(const std::vector<RunSummary>& runs) {
  std::set<std::string> names;
  for (const auto& run : runs)
    for (const auto& [name, value] : run.given.items()) names.insert(name);
  std::vector<std::string> out;
  for (const auto& name : names)
    if (std::ranges::any_of(runs, [&](const auto& run) {
          return !same_value(flag_text(run, name), flag_text(runs[0], name));
        }))
      out.push_back(name);
  return out;
}

}  // namespace fq::detail
