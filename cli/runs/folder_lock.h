#pragma once

/// One process at a time writes a run directory.

#include <memory>
#include <string>
#include <vector>

#include "fakequant/cli/flags/flags.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/locks/file_lock.h"

namespace fq::cli {

/// Another process writes the folder: empty folders in it are that one's.
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
