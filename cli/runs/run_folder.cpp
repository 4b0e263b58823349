#include "fakequant/cli/runs/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "fakequant/cli/flags/command_files.h"
#include "fakequant/cli/flags/flags.h"
#include "fakequant/cli/system/ranks.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/unfinished_file.h"
#include "fakequant/report/detail/runs/json_shape.h"

namespace fq::cli {
namespace {

namespace fs = std::filesystem;

bool is_folder(const std::string& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

std::string trim_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// Returns true if a file is inside of the folder.
/// Compares canonical paths, so that links and ".." do not hide a file of the run.
bool is_inside_folder(const std::string& file, const RunFolder& folder) {
  std::error_code none;
  const auto inner = fs::weakly_canonical(file, none).string(),
             outer = fs::weakly_canonical(folder.path, none).string();
  return !file.empty() && (inner + "/").starts_with(outer.ends_with('/') ? outer : outer + "/");
}

void check_reads_elsewhere(const RunFolder& folder, const RunTarget& target) {
  // With --force the folder is cleared before the run reads its inputs.
  for (const auto& [flag, path] : target.inputs)
    FQ_CHECK(!is_inside_folder(path, folder), target.command,
             "--output {} would replace the run that --{} reads from: name another folder", folder.path,
             flag);
}

// An interrupted run that has not written its config yet starts from the beginning.
void check_resumed(const RunFolder& folder, const RunTarget& target) {
  if (!holds_run(folder)) {
    FQ_CHECK(is_empty_folder(folder), target.command,
             "--resume: {} holds other files and no run: name the folder of a run, or a new one by --output",
             folder.path);
    return;
  }
  const std::string command = read_run_config(folder).value("command", std::string());
  FQ_CHECK(command == target.command, target.command,
           "{} holds a run of {}: resume it by fakequant {} --resume {}", folder.path, command, command,
           folder.path);
}

}  // namespace

std::string RunFolder::kept(std::int64_t epoch) const {
  return file(fmt::format("checkpoints/epoch-{:04}.h5", epoch));
}

bool names_folder(const std::string& path) { return path.ends_with('/') || is_folder(path); }

std::optional<RunFolder> run_folder(const std::string& output) {
  if (!names_folder(output)) return std::nullopt;
  return RunFolder{output.ends_with('/') ? output : output + "/"};
}

std::string output_checkpoint(const std::string& output, const std::string& command) {
  check_given(output, "output", command);
  const auto folder = run_folder(output);
  return folder ? folder->last() : output;
}

std::string read_checkpoint_path(const std::string& path) {
  if (!names_folder(path)) return path;
  const RunFolder folder{path.ends_with('/') ? path : path + "/"};
  std::error_code none;
  // Without validation data there is no best epoch.
  if (fs::is_regular_file(folder.best(), none)) return folder.best();
  if (fs::is_regular_file(folder.last(), none)) return folder.last();
  return path;
}

nlohmann::ordered_json read_run_config(const RunFolder& folder) {
  using nlohmann::ordered_json;
  using S = fq::detail::JsonShape;
  // Keys that readers use. Their types are checked here once, so that readers need no checks of their own.
  static const S shape = S::object({{"command", S::text()},
                                    {"started", S::text()},
                                    {"steps", S::whole()},
                                    {"epochs", S::whole()},
                                    {"parameters", S::number()},
                                    {"given", S::object()},
                                    {"defaults", S::object()},
                                    {"settings", S::object()}});
  const ordered_json config = fq::detail::load_json(folder.config(), "run", shape);
  const auto fail = [&](const std::string& why) {
    throw FileError(folder.config(), "", fmt::format("[run] {}: {}", folder.config(), why));
  };
  if (!config.contains("run_format") || !fq::detail::whole_if<std::int64_t>(config["run_format"]))
    fail("this is no config.json of a run directory of fakequant");
  // Older formats are read, a newer one may have another meaning.
  if (fq::detail::whole_value<std::int64_t>(config["run_format"]) > kRunFormat)
    fail(fmt::format(
        "the run is of a newer version of fakequant, {}: use that one",
        config.contains("fakequant") ? config["fakequant"].dump() : std::string("which it does not name")));
  if (!config.contains("given") || !config["given"].is_object() || !config.contains("defaults") ||
      !config["defaults"].is_object())
    fail("it has no flags: it is damaged");
  return config;
}

void check_run_folder(const RunTarget& target) {
  const auto folder = run_folder(target.output);
  // The first rank alone writes to the folder.
  if (!folder || !is_first_rank()) return;
  std::error_code none;
  const std::string path = trim_slashes(folder->path);
  FQ_CHECK(!fs::exists(path, none) || is_folder(path), target.command,
           "--output {}: {} is a file: leave the slash out to write a checkpoint, or name another folder",
           target.output, path);
  if (target.resume) return check_resumed(*folder, target);
  if (target.force) return check_reads_elsewhere(*folder, target);
  FQ_CHECK(!holds_run(*folder), target.command,
           "{} holds a run already: resume it by --resume {}, name another folder, or give --force to "
           "replace it",
           folder->path, folder->path);
  FQ_CHECK(is_empty_folder(*folder), target.command,
           "{} is a folder that holds other files: name a new one, or give --force to add the run",
           folder->path);
}

namespace {

namespace fs = std::filesystem;

// Temporary files of AtomicFile have the names of `companion_name`.
bool is_leftover(const std::string& name) {
  return name.starts_with('.') && name.find(".fakequant-") != std::string::npos;
}

bool is_events(const std::string& name) {
  return name.starts_with("events.out.tfevents.") && name.ends_with(".fakequant");
}

/// Returns true for files of a run that ended before its first checkpoint. They do not count as a run.
bool is_of_no_run(const fs::path& path) {
  std::error_code none;
  const std::string name = path.filename().string();
  if (name == "checkpoints")
    return std::ranges::all_of(fs::directory_iterator(path, none), [](const auto& entry) {
      return is_leftover(entry.path().filename().string());
    });
  // config.json and metrics.jsonl with a line are written at the start of training, so without them no work
  // is lost.
  return name == "log.txt" || is_events(name) || is_leftover(name) ||
         (name == "metrics.jsonl" && fs::file_size(path, none) == 0);
}

/// Returns true for files that a run writes in addition to its folder of checkpoints.
bool is_of_run(const std::string& name) {
  for (const char* known :
       {"config.json", "metrics.jsonl", "log.txt", "report.html", "metrics.csv", "profile.json"})
    if (name == known) return true;
  return is_events(name);
}

bool is_of_checkpoints(const std::string& name) {
  return name == "last.h5" || name == "best.h5" || (name.starts_with("epoch-") && name.ends_with(".h5"));
}

// Collects the names first: removing entries while iterating is unspecified.
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

// A temporary file of page or table remains only if the process was killed before the rename.
bool was_cut_off(const RunFolder& folder) {
  const std::string page = fq::detail::companion_name(folder.page(), ""),
                    table = fq::detail::companion_name(folder.table(), "");
  std::error_code none;
  return std::ranges::any_of(fs::directory_iterator(folder.path, none), [&](const auto& entry) {
    const std::string name = entry.path().filename().string();
    return name.starts_with(page) || name.starts_with(table);
  });
}

namespace {

namespace fs = std::filesystem;

// No file of a run has this name. FileLock puts a hidden lock file next to it.
constexpr const char* kLocked = "writer";  // file name of the lock in a folder

// Returns the folders that did not exist, the innermost first, for their removal. Folders are synced to disk
// one by one.
std::vector<std::string> make_folders(const std::string& folder) {
  std::vector<std::string> made;
  fs::path so_far;
  for (const fs::path& part : fs::path(folder)) {
    so_far /= part;
    std::error_code error;
    if (part.empty()) continue;  // after a slash at the end
    if (fs::create_directory(so_far, error)) {
      made.insert(made.begin(), so_far.string());
      (void)fq::detail::sync_folder(fq::detail::parent_folder(so_far.string()));
    }
    if (error)
      throw FileError(folder, "",
                      fmt::format("[run] {} cannot be made: {}: name another folder by --output",
                                  so_far.string(), error.message()));
  }
  return made;
}

}  // namespace

FolderLock::FolderLock(const std::string& command, const std::string& folder) : made_(make_folders(folder)) {
  try {
    lock_ = std::make_unique<FileLock>((fs::path(folder) / kLocked).string(), [&](const std::string& owner) {
      throw FolderTaken(fmt::format("[{}] {} is being written by {}: wait for it, or name another folder",
                                    command, folder, owner));
    });
  } catch (const FolderTaken&) {
    throw;
  } catch (const std::exception&) {
    remove_empty(made_);
    throw;
  }
}

FolderLock::~FolderLock() {
  lock_.reset();
  remove_empty(made_);
}

std::unique_ptr<FolderLock> lock_run(const RunTarget& target) {
  const auto folder = run_folder(target.output);
  if (!folder || !is_first_rank()) return nullptr;
  auto lock = std::make_unique<FolderLock>(target.command, folder->path);
  check_run_folder(target);  // another process may have run since the first check
  return lock;
}

}  // namespace fq::cli
