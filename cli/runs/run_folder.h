#pragma once

/// The folder of a run (docs/runs.md): paths of its files, checks before a run begins, and its lock.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
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

/// Whether that is the name of a folder: it ends with a slash, or one is there.
[[nodiscard]] bool names_folder(const std::string& path);
/// Nothing where --output names a file.
[[nodiscard]] std::optional<RunFolder> run_folder(const Flags& flags);
/// The checkpoint that --output leads to: the file, or the last one of a run directory.
[[nodiscard]] std::string output_checkpoint(const Flags& flags);
/// The checkpoint that a flag which names one leads to: of a run directory that of its best epoch or, where
/// there is none, the last one; anything else is given back as it is.
[[nodiscard]] std::string read_checkpoint_path(const std::string& path);

/// config.json of a run directory. Throws FileError where there is none, and for one that is damaged or
/// newer.
[[nodiscard]] nlohmann::ordered_json read_run_config(const RunFolder& folder);

/// Throws ArgumentError for a folder that cannot become that of this run: a file, one that holds other
/// things, and without --resume and --force one that holds a run; with --resume one of another command.
void check_run_folder(const Flags& flags);

/// Returns true for a run that began: config.json and metrics.jsonl exist.
[[nodiscard]] bool holds_run(const RunFolder& folder);
/// Returns true if the folder is empty or has only files of a run that ended before it began.
[[nodiscard]] bool is_empty_folder(const RunFolder& folder);
/// Removes the files of a run. Other files stay.
void clear_run(const RunFolder& folder);

/// Returns true if a process was killed while it wrote the page or the table.
[[nodiscard]] bool was_cut_off(const RunFolder& folder);

/// Another process writes the folder. Empty folders in it belong to that process.
class FolderTaken final : public SystemError {
 public:
  using SystemError::SystemError;
};

class FolderLock {
 public:
  /// Makes the folder where there is none. Throws FolderTaken naming the process and its host while another
  /// writes it, FileError where it cannot be made.
  FolderLock(const std::string& command, const std::string& folder);
  /// Removes the folders that it made if they are empty.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;  // one holder
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::vector<std::string> made_;  // the innermost first
  std::unique_ptr<FileLock> lock_;
};

/// Of the run directory that --output names, for commands that train; nothing for a file, and on other ranks
/// than the first. Throws what check_run_folder throws, too.
[[nodiscard]] std::unique_ptr<FolderLock> lock_run(const Flags& flags);

}  // namespace fq::cli
