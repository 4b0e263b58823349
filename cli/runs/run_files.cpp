#include "fakequant/cli/runs/run_files.h"

#include <filesystem>

#include "fakequant/cli/runs/run_contents.h"
#include "fakequant/cli/runs/run_flags.h"
#include "fakequant/cli/runs/transcript.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/unfinished_file.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::int64_t kMostCopied = std::int64_t{1} << 40;

std::string shown_whatever_it_holds(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

/// A link to the file, which no later checkpoint changes, or a copy where the file system has no links.
void keep_copy(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::remove(to, error);
  fs::create_hard_link(from, to, error);
  if (error) write_file(to, read_file(from, kMostCopied));
}

}  // namespace

void open_run_folder(const Flags& flags) {
  const auto folder = run_folder(flags);
  if (!folder || !is_first_rank()) return;
  std::error_code none;
  if (!flags.on("resume")) clear_run(*folder);
  fs::create_directories(folder->file("checkpoints"), none);
  begin_transcript(folder->log());
}

RunFiles::RunFiles(RunFolder folder, const Flags& flags)
    : folder_(std::move(folder)), keep_(kept_epochs(flags)), writes_table_(logs(flags, "csv")) {
  if (logs(flags, "tensorboard")) events_.emplace(folder_.path);
}

void RunFiles::begin(const ordered_json& config, std::int64_t step) {
  std::error_code none;
  if (fs::exists(folder_.metrics(), none)) {
    record_ = fq::detail::RunRecord::load(folder_.metrics());
    record_.forget_after(step);
  }
  write_file(folder_.metrics(), record_.text());
  write_file(folder_.config(), shown_whatever_it_holds(config, 2) + "\n");
  metrics_.emplace(folder_.metrics());
  if (events_) events_->begin(step);
}

void RunFiles::add(ordered_json line) {
  metrics_->add(shown_whatever_it_holds(line, -1));
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
  fs::remove(folder_.kept(epoch - keep_), none);
  (void)fq::detail::sync_folder(folder_.file("checkpoints"));
}

void RunFiles::write_page(const std::string& html) const {
  write_file(folder_.page(), html);
  if (writes_table_) write_file(folder_.table(), metrics_csv(record_));
}

}  // namespace fq::cli
