#include "fakequant/cli/runs/event_log.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/detail/line_file.h"
#include "fakequant/report/detail/runs/event_file.h"

namespace fq::cli {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

bool is_place(const std::string& key) { return key == "step" || key == "epoch" || key == "epochs"; }

fq::detail::Scalars scalars_of(const nlohmann::ordered_json& line) {
  fq::detail::Scalars out;
  const std::string event = line["event"];
  for (const auto& [key, value] : line.items())
    if (value.is_number() && !is_place(key)) out.emplace_back(event + "/" + key, value.get<double>());
  if (!line.contains("quantizers")) return out;
  for (const auto& [name, numbers] : line["quantizers"].items())
    for (const auto& [key, value] : numbers.items())
      if (value.is_number()) out.emplace_back(key + "/" + name, value.get<double>());
  return out;
}

}  // namespace

struct EventLog::Body {
  explicit Body(const std::string& path) : file(path) {}
  LineFile file;
};

EventLog::EventLog(const std::string& folder) {
  std::error_code none;
  auto second = static_cast<std::int64_t>(seconds_now());
  std::string path;
  do path = fmt::format("{}events.out.tfevents.{}.fakequant", folder, second++);
  while (std::filesystem::exists(path, none));
  body_ = std::make_unique<Body>(path);
  body_->file.add_bytes(fq::detail::event_file_head(seconds_now()));
}
EventLog::~EventLog() = default;
EventLog::EventLog(EventLog&&) noexcept = default;

void EventLog::begin(std::int64_t step) {
  body_->file.add_bytes(fq::detail::session_start(seconds_now(), step));
}

void EventLog::add(const nlohmann::ordered_json& line) {
  body_->file.add_bytes(fq::detail::scalars_record(
      seconds_now(), fq::detail::whole_value<std::int64_t>(line["step"]), scalars_of(line)));
}

void EventLog::sync() { body_->file.sync(); }

}  // namespace fq::cli
