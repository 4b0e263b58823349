#pragma once

/// A lock on a file by its name, for whoever reads it, changes what was read, and writes it.

#include <functional>
#include <string>

namespace fq {

/// Held by one process or thread at a time for `path`, which need not be there: an empty file
/// ".NAME.fakequant-lock" beside it, where links lead, which is removed afterwards. One that a killed process
/// left is nobody's, and the next takes it. Those who only read or write the file do not wait.
class FileLock {
 public:
  /// Waits until it is free; `waiting` is called every tenth of a second meanwhile and may throw. Throws
  /// FileError when the place cannot be written, SystemError when the file system has no locks.
  FileLock(const std::string& path, const std::function<void()>& waiting);
  ~FileLock();
  FileLock(const FileLock&) = delete;  // one holder
  FileLock& operator=(const FileLock&) = delete;

 private:
  [[nodiscard]] bool take();
  [[noreturn]] void refuse(int error);

  std::string path_, lock_;
  int file_ = -1;
};

}  // namespace fq
