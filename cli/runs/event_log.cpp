#include "fakequant/cli/runs/event_log.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "fakequant/core/error.h"
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
    for (const auto& [key, value] : numbers.items()) out.emplace_back(key + "/" + name, value.get<double>());
  return out;
}

}  // namespace

struct EventLog::Body {
  std::string path;
  std::ofstream file;

  void put(const std::string& record) {
    file.write(record.data(), std::streamsize(record.size()));
    file.flush();
    if (!file) throw SystemError(fmt::format("[event_log] {} cannot be written: is the disk full?", path));
  }
};

EventLog::EventLog(const std::string& folder) : body_(std::make_unique<Body>()) {
  std::error_code none;
  auto second = static_cast<std::int64_t>(seconds_now());
  do body_->path = fmt::format("{}events.out.tfevents.{}.fakequant", folder, second++);
  while (std::filesystem::exists(body_->path, none));
  body_->file.open(body_->path, std::ios::binary | std::ios::trunc);
  body_->put(fq::detail::event_file_head(seconds_now()));
}
EventLog::~EventLog() = default;
EventLog::EventLog(EventLog&&) noexcept = default;

void EventLog::begin(std::int64_t step) { body_->put(fq::detail::session_start(seconds_now(), step)); }

void EventLog::add(const nlohmann::ordered_json& line) {
  body_->put(fq::detail::scalars_record(seconds_now(), line["step"].get<std::int64_t>(), scalars_of(line)));
}

}  // namespace fq::cli
