#include "fakequant/cli/runs/sweep/point_summary.h"

#include <filesystem>

#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/report/detail/runs/json_shape.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using fq::detail::RunSummary;
using nlohmann::ordered_json;

std::string plain_path(const std::string& path) {
  return fs::path(path.ends_with('/') ? path : path + "/").parent_path().string();
}

/// The trials that sweep.json lists; null where there is none.
ordered_json trials_at(const fs::path& folder) {
  const std::string path = (folder / "sweep.json").string();
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return nullptr;
  const auto text = fq::detail::JsonText::load(path, "compare");
  const fq::detail::JsonValue root(*text);
  ordered_json out = ordered_json::array();
  for (const auto& trial : root.at("trials").elements()) {
    ordered_json set = ordered_json::array();
    for (const auto& change : trial.at("set").elements()) set.push_back(change.string());
    const std::string name = trial.at("folder").string();
    if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos)
      trial.at("folder").fail(
          fmt::format("'folder' is '{}', the name of a folder in the sweep is needed", name));
    out.push_back({{"folder", name}, {"set", std::move(set)}});
  }
  return out;
}

/// Null where it is none.
ordered_json trial_at(const std::string& path) {
  std::error_code none;
  const fs::path folder = fs::absolute(plain_path(path), none).lexically_normal();
  for (auto& trial : trials_at(folder.parent_path()))
    if (trial["folder"] == folder.filename().string()) return trial;
  return nullptr;
}

/// The report of `run`.
const fq::detail::JsonShape& report_shape() {
  using S = fq::detail::JsonShape;
  static const S phase = S::object({{"command", S::text()}, {"result", S::object()}});
  static const S report = S::object({{"phases", S::list(phase)}, {"seconds", S::number()}});
  return report;
}

void take_report(RunSummary& run, const ordered_json& report) {
  const auto number = [&](const char* key) {
    const auto value = last_number(report, key);
    return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
  };
  run.state = "done";
  for (const auto& phase : report.value("phases", ordered_json::array()))
    if (phase.value("command", "") == "evaluate") run.validated = true;
  const bool held_out = !run.validated && number("val_loss");
  run.validated = run.validated || held_out;
  run.accuracy = number(held_out ? "val_accuracy" : "accuracy");
  run.loss = number(held_out ? "val_loss" : "loss");
  if (const auto bytes = number("weight_bytes")) run.bytes = std::int64_t(*bytes);
  run.ms_per_step = number("ms_per_step");
  run.seconds = fq::detail::number_at(report, "seconds");
}

}  // namespace

ordered_json read_report(const std::string& path) {
  return fq::detail::load_json(path, "compare", report_shape());
}

ordered_json last_number(const ordered_json& report, const char* key) {
  ordered_json out;
  for (const auto& phase : report.value("phases", ordered_json::array()))
    if (phase.contains("result") && phase["result"].contains(key)) out = phase["result"][key];
  return out;
}

std::vector<std::string> runs_at(const std::string& path) {
  std::vector<std::string> out;
  for (const auto& trial : trials_at(path))
    out.push_back((fs::path(plain_path(path)) / trial["folder"].get<std::string>()).string());
  return out.empty() ? std::vector{path} : out;
}

bool is_point(const std::string& path) { return !trial_at(path).is_null(); }

RunSummary summary_of_point(const std::string& path) {
  RunSummary out{
      .name = plain_path(path), .command = "run", .model = "-", .format = "-", .state = "unfinished"};
  out.given = ordered_json::object();
  const auto trial = trial_at(path);
  for (const auto& change : trial["set"]) {
    const auto text = change.get<std::string>();
    out.given[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  const std::string report = plain_path(path) + "/report.json";
  std::error_code none;
  if (fs::is_regular_file(report, none)) take_report(out, read_report(report));
  return out;
}

}  // namespace fq::cli
