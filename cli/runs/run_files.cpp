#include "fakequant/cli/runs/run_files.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "fakequant/cli/flags/flag_words.h"
#include "fakequant/cli/runs/run_folder.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/cli/system/streams.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/detail/line_file.h"
#include "fakequant/core/io/detail/unfinished_file.h"

namespace fq::cli {
namespace {

/// Named numbers of one step.
using Scalars = std::vector<std::pair<std::string, double>>;

// Shifts instead of memcpy: the bytes do not depend on the machine.
template <class T>
std::string little_endian(T value) {
  std::string out;
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

std::string checksum(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  // TensorFlow masks checksums of records, because a checksum of data that contains checksums is weak
  // (tensorflow/core/lib/hash/crc32c.h).
  return little_endian(static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u));
}

// Protobuf: 7 bits per byte, the lowest first, the high bit on all but the last.
std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}

// Fields of messages, by number (tensorflow/core/util/event.proto and framework/summary.proto).
std::string tag(int field, int wire_type) {
  return varint(static_cast<std::uint64_t>(field << 3 | wire_type));
}
std::string bytes_field(int field, std::string_view bytes) {
  return tag(field, 2) + varint(bytes.size()) + std::string(bytes);
}
std::string whole_field(int field, std::int64_t value) {
  return tag(field, 0) + varint(static_cast<std::uint64_t>(value));
}

// Event: field 1 is wall_time (double, wire type 1), field 2 is step.
std::string event(double wall_time, std::int64_t step) {
  return tag(1, 1) + little_endian(std::bit_cast<std::uint64_t>(wall_time)) + whole_field(2, step);
}

// Summary.Value: field 1 is tag, field 2 is simple_value (float, wire type 5).
std::string scalar(const std::string& name, double value) {
  return bytes_field(1, name) + tag(2, 5) +
         little_endian(std::bit_cast<std::uint32_t>(static_cast<float>(value)));
}

/// Returns the record around `data`: the length and `data`, each with a masked CRC-32C (rotated by 15 bits,
/// plus 0xa282ead8).
std::string event_record(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + checksum(length) + std::string(data) + checksum(data);
}

/// Returns the first record of a file, which holds the file version.
std::string event_file_head(double wall_time) {
  return event_record(event(wall_time, 0) + bytes_field(3, "brain.Event:2"));
}

/// Returns a record that starts or resumes a run at a step. TensorBoard then ignores later steps of earlier
/// files.
std::string session_start(double wall_time, std::int64_t step) {
  return event_record(event(wall_time, step) + bytes_field(7, whole_field(1, 1)));
}

/// Returns a record of the scalars of a step.
std::string scalars_record(double wall_time, std::int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [name, value] : scalars) summary += bytes_field(1, scalar(name, value));
  return event_record(event(wall_time, step) + bytes_field(5, summary));
}

namespace fs = std::filesystem;

}  // namespace

void check_run_settings(const TrainingOptions& options) {
  const std::vector<std::string> known{"csv", "tensorboard"};
  // Messages name the line of --config that has a setting.
  const Flags& line = *options.line;
  for (const auto& name : listed_words(options.log))
    FQ_CHECK(std::ranges::find(known, name) != known.end(), options.command, "{} is '{}'{}",
             line.shown("log"), name, fq::detail::did_you_mean(name, known));
  for (const char* name : {"keep_epochs", "log"})
    FQ_CHECK(!line.given(name) || run_folder(options.output), options.command,
             "{} is for a run directory, and --output names a file: name a folder, such as {}/",
             line.shown(name), fs::path(options.output).replace_extension().string());
}

namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Coordinates of a line, not measurements.
bool is_progress_key(const std::string& key) { return key == "step" || key == "epoch" || key == "epochs"; }

Scalars read_scalars(const nlohmann::ordered_json& line) {
  Scalars out;
  const std::string event = line["event"];
  for (const auto& [key, value] : line.items())
    if (value.is_number() && !is_progress_key(key)) out.emplace_back(event + "/" + key, value.get<double>());
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
  // The name has the second of the start. Two starts in one second must not share a file.
  do path = fmt::format("{}events.out.tfevents.{}.fakequant", folder, second++);
  while (std::filesystem::exists(path, none));
  body_ = std::make_unique<Body>(path);
  body_->file.add_bytes(event_file_head(seconds_now()));
}
EventLog::~EventLog() = default;
EventLog::EventLog(EventLog&&) noexcept = default;

void EventLog::begin(std::int64_t step) { body_->file.add_bytes(session_start(seconds_now(), step)); }

void EventLog::add(const nlohmann::ordered_json& line) {
  body_->file.add_bytes(
      scalars_record(seconds_now(), fq::detail::whole_value<std::int64_t>(line["step"]), read_scalars(line)));
}

void EventLog::sync() { body_->file.sync(); }

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::int64_t kMostCopied = std::int64_t{1} << 40;

// Flags may hold bytes that are no UTF-8, which dump() would reject.
std::string dump_lossy(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

/// Returns true if the setting `log` contains `name`: "csv", "tensorboard".
bool logs(const TrainingOptions& options, const std::string& name) {
  const auto all = listed_words(options.log);
  return std::ranges::find(all, name) != all.end();
}

/// Makes a hard link to the file, which no later checkpoint changes, or a copy if the file system has no
/// links.
void keep_copy(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::remove(to, error);
  // Checkpoints are replaced by renames, so a link keeps the old content without copying it.
  fs::create_hard_link(from, to, error);
  if (error) write_file(to, read_file(from, kMostCopied));
}

}  // namespace

void open_run_folder(const TrainingOptions& options) {
  const auto folder = run_folder(options.output);
  if (!folder || !is_first_rank()) return;
  std::error_code none;
  // Without --resume the checks allow an existing run only with --force.
  if (!options.resume) clear_run(*folder);
  fs::create_directories(folder->file("checkpoints"), none);
  begin_transcript(folder->log());
}

RunFiles::RunFiles(RunFolder folder, const TrainingOptions& options)
    : folder_(std::move(folder)), keep_(options.keep_epochs), writes_table_(logs(options, "csv")) {
  if (logs(options, "tensorboard")) events_.emplace(folder_.path);
}

void RunFiles::begin(const ordered_json& config, std::int64_t step) {
  std::error_code none;
  if (fs::exists(folder_.metrics(), none)) {
    record_ = fq::detail::RunRecord::load(folder_.metrics());
    // Steps after the last checkpoint are computed again.
    record_.truncate(step);
  }
  write_file(folder_.metrics(), record_.text());
  write_file(folder_.config(), dump_lossy(config, 2) + "\n");
  metrics_.emplace(folder_.metrics());
  if (events_) events_->begin(step);
}

void RunFiles::add(ordered_json line) {
  metrics_->add(dump_lossy(line, -1));
  record_.lines.push_back(std::move(line));
}

void RunFiles::add_numbers(ordered_json line) {
  if (events_) events_->add(line);
  add(std::move(line));
}

void RunFiles::sync() {
  metrics_->sync();
  if (events_) events_->sync();
}

void RunFiles::keep_epoch(std::int64_t epoch) const {
  if (keep_ == 0) return;
  keep_copy(folder_.last(), folder_.kept(epoch));
  std::error_code none;
  // One epoch leaves for each that comes. A changed keep_epochs leaves older files in place.
  fs::remove(folder_.kept(epoch - keep_), none);
  (void)fq::detail::sync_folder(folder_.file("checkpoints"));
}

void RunFiles::write_page(const std::string& html) const {
  write_file(folder_.page(), html);
  if (writes_table_) write_file(folder_.table(), metrics_csv(record_));
}

}  // namespace fq::cli
