#pragma once

/// Files that are there whole or not at all: written beside, synced, renamed, directory synced.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fq {

/// Takes bytes for `path` in `path` + ".tmp"; `commit` puts them in place of what was there. A process that
/// is killed leaves the old file and at most one ".tmp", which the next writer takes over. A path that names
/// a device or pipe is written directly; a link is followed. The mode of an existing file is kept. Throws
/// FileError when the place cannot be written (no such directory, no permission, a directory), SystemError
/// when the system refuses (disk full, file size limit, another writer of the same path).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  /// Removes what was written unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;  // one writer of one file
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Syncs and renames. Once.
  void commit();

 private:
  [[noreturn]] void fail(int error, std::string_view what) const;
  void open_beside();
  bool lock_beside();

  std::string path_;    // as given, for messages
  std::string target_;  // links resolved
  std::string beside_;  // empty when written directly
  int file_ = -1;
  unsigned mode_ = 0;  // of the file to replace; 0 without one
};

/// Writes `contents` to `path` as above.
void write_file(const std::string& path, std::string_view contents);

/// The bytes of a regular file. Throws FileError when it cannot be read or is longer than `limit` bytes.
[[nodiscard]] std::string read_file(const std::string& path, std::int64_t limit = std::int64_t{64} << 20);

}  // namespace fq
