#include "fakequant/cli/runs/run_contents.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "fakequant/core/io/detail/unfinished_file.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;

bool is_left_over(const std::string& name) {
  return name.starts_with('.') && name.find(".fakequant-") != std::string::npos;
}

bool is_events(const std::string& name) {
  return name.starts_with("events.out.tfevents.") && name.ends_with(".fakequant");
}

/// What a run leaves that ended before its first checkpoint does not count.
bool is_of_no_run(const fs::path& path) {
  std::error_code none;
  const std::string name = path.filename().string();
  if (name == "checkpoints")
    return std::ranges::all_of(fs::directory_iterator(path, none), [](const auto& entry) {
      return is_left_over(entry.path().filename().string());
    });
  return name == "log.txt" || is_events(name) || is_left_over(name) ||
         (name == "metrics.jsonl" && fs::file_size(path, none) == 0);
}

/// Files that a run writes beside its folder of checkpoints.
bool is_of_run(const std::string& name) {
  for (const char* known :
       {"config.json", "metrics.jsonl", "log.txt", "report.html", "metrics.csv", "profile.json"})
    if (name == known) return true;
  return is_events(name);
}

bool is_of_checkpoints(const std::string& name) {
  return name == "last.h5" || name == "best.h5" || (name.starts_with("epoch-") && name.ends_with(".h5"));
}

void remove_if(const std::string& folder, bool (*is_ours)(const std::string&)) {
  std::error_code none;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none))
    if (is_ours(at->path().filename().string())) found.push_back(at->path());
  for (const auto& path : found) fs::remove(path, none);
}

}  // namespace

bool holds_run(const RunFolder& folder) {
  std::error_code none;
  return fs::is_regular_file(folder.config(), none) && fs::exists(folder.metrics(), none);
}

bool is_empty_folder(const RunFolder& folder) {
  std::error_code none;
  return std::ranges::all_of(fs::directory_iterator(folder.path, none),
                             [](const auto& entry) { return is_of_no_run(entry.path()); });
}

void clear_run(const RunFolder& folder) {
  if (!holds_run(folder)) return;
  remove_if(folder.path, is_of_run);
  remove_if(folder.file("checkpoints"), is_of_checkpoints);
}

bool was_cut_off(const RunFolder& folder) {
  const std::string page = fq::detail::companion_name(folder.page(), ""),
                    table = fq::detail::companion_name(folder.table(), "");
  std::error_code none;
  return std::ranges::any_of(fs::directory_iterator(folder.path, none), [&](const auto& entry) {
    const std::string name = entry.path().filename().string();
    return name.starts_with(page) || name.starts_with(table);
  });
}

}  // namespace fq::cli
