#pragma once

/// A lock on a file by its name, for programs that read, change and write the file.

#include <functional>
#include <string>

namespace fq {

/// Locks `path` for one process or thread at a time; the file need not exist. The lock is a file
/// ".NAME.fakequant-lock" in the directory of the file (after resolving links). It contains the owner and is
/// removed on release. A lock file of a killed process is free for the next process. Programs that only read
/// or write the file do not wait.
///
/// If the file system has no locks (flock fails), the lock is a dangling link ".NAME.fakequant-owner", which
/// only one process can create. The process number and start time identify a killed process of this host.
/// The link of a killed process of another host must be removed by hand.
class FileLock {
 public:
  /// Waits until the lock is free. Meanwhile calls `waiting` every tenth of a second with a description of
  /// the owner ("process 12 on host", "another process"); `waiting` may throw. Logs a warning if the file
  /// system has no locks. Throws FileError if the directory cannot be written, SystemError if the file
  /// system has neither locks nor links.
  FileLock(const std::string& path, const std::function<void(const std::string& owner)>& waiting);
  ~FileLock();
  FileLock(const FileLock&) = delete;  // one holder
  FileLock& operator=(const FileLock&) = delete;

 private:
  [[nodiscard]] bool take();
  [[nodiscard]] bool take_link();
  [[nodiscard]] std::string owner() const;
  [[noreturn]] void refuse(int error);

  std::string path_, lock_, link_;
  bool has_locks_ = true;
  int file_ = -1;
};

}  // namespace fq
