#pragma once

/// The folder of a run (docs/runs.md): paths of its files, checks before a run begins, and its lock.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/locks/file_lock.h"

namespace fq::cli {

/// Format version of run directories. Newer versions are rejected.
inline constexpr int kRunFormat = 1;

struct RunFolder {
  std::string path;  ///< ends with a slash

  [[nodiscard]] std::string file(const std::string& name) const { return path + name; }
  [[nodiscard]] std::string config() const { return file("config.json"); }
  [[nodiscard]] std::string metrics() const { return file("metrics.jsonl"); }
  [[nodiscard]] std::string log() const { return file("log.txt"); }
  [[nodiscard]] std::string page() const { return file("report.html"); }
  [[nodiscard]] std::string table() const { return file("metrics.csv"); }
  [[nodiscard]] std::string last() const { return file("checkpoints/last.h5"); }
  [[nodiscard]] std::string best() const { return file("checkpoints/best.h5"); }
  /// "RUN/checkpoints/epoch-0003.h5": the checkpoint of an epoch (keep_epochs), from 1.
  [[nodiscard]] std::string kept(std::int64_t epoch) const;
};

/// Returns true if `path` is a folder name: it ends with a slash, or it is an existing folder.
[[nodiscard]] bool names_folder(const std::string& path);
/// The output of a run, and the files that it reads.
struct RunTarget {
  std::string command, output;
  bool resume = false, force = false;
  std::vector<std::pair<const char*, std::string>> inputs = {};  ///< flags and paths; a path may be empty
};

/// Returns the folder of --output; empty if --output names a file.
[[nodiscard]] std::optional<RunFolder> run_folder(const std::string& output);
/// Returns the checkpoint of --output: the file, or the last checkpoint of a run directory. Throws
/// ArgumentError in the name of `command` without an output.
[[nodiscard]] std::string output_checkpoint(const std::string& output, const std::string& command);
/// Returns the checkpoint of an input flag. A run directory gives its best checkpoint, or the last one if it
/// has no best. Other paths are returned unchanged.
[[nodiscard]] std::string read_checkpoint_path(const std::string& path);

/// Reads config.json of a run directory. Throws FileError if the file is missing, damaged or newer.
[[nodiscard]] nlohmann::ordered_json read_run_config(const RunFolder& folder);

/// Throws ArgumentError if the folder cannot be used for this run. It may not be a file or hold other files.
/// Without --resume and --force it may not hold a run, and with --resume no run of another command.
void check_run_folder(const RunTarget& target);

/// Returns true if a run has started in the folder: config.json and metrics.jsonl exist.
[[nodiscard]] bool holds_run(const RunFolder& folder);
/// Returns true if the folder is empty or has only files of a run that ended before its start was recorded.
[[nodiscard]] bool is_empty_folder(const RunFolder& folder);
/// Removes the files of a run. Other files stay.
void clear_run(const RunFolder& folder);

/// Returns true if a process was killed while it wrote the page or the table.
[[nodiscard]] bool was_cut_off(const RunFolder& folder);

/// Another process writes to the folder. It owns the empty folders inside.
class FolderTaken final : public SystemError {
 public:
  using SystemError::SystemError;
};

class FolderLock {
 public:
  /// Creates the folder if necessary and locks it. Throws FolderTaken naming process and host if another
  /// process holds the lock. Throws FileError if the folder cannot be created.
  FolderLock(const std::string& command, const std::string& folder);
  /// Releases the lock and removes created folders that are empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;  // one holder
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::vector<std::string> made_;  // the innermost first
  std::unique_ptr<FileLock> lock_;
};

/// Locks the run directory of --output, for commands that train. Returns null for a file, and on ranks other
/// than the first. Also throws as check_run_folder.
[[nodiscard]] std::unique_ptr<FolderLock> lock_run(const RunTarget& target);

}  // namespace fq::cli
