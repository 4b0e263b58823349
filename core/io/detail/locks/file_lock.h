#pragma once

/// A lock on a file by its name, for whoever reads it, changes what was read, and writes it.

#include <functional>
#include <string>

namespace fq {

/// Held by one process or thread at a time for `path`, which need not be there: a file
/// ".NAME.fakequant-lock" beside it, where links lead, which tells whose it is and is removed afterwards. One
/// that a killed process left is nobody's, and the next takes it. Those who only read or write the file do
/// not wait.
///
/// Where the file system has no locks (flock fails) the lock is a link ".NAME.fakequant-owner" that leads
/// nowhere, which a file system makes for one only. Then a killed process of this host is known by its
/// number and the time of its start; of a killed one of another host the link has to be removed by hand.
class FileLock {
 public:
  /// Waits until it is free; `waiting` is called every tenth of a second meanwhile, with the words for whose
  /// it is ("process 12 on host", "another process"), and may throw. Warns by the log where there are no
  /// locks. Throws FileError when the place cannot be written, SystemError when the file system has neither
  /// locks nor links.
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
