#pragma once

/// Files that are there whole or not at all: written beside, synced, renamed, directory synced.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace fq {

namespace detail {
class UnfinishedFile;
}

/// Takes bytes for `path` in a new file beside it, ".NAME.fakequant-XXXXXX"; `commit` puts them in place of
/// what was there. A process that is killed leaves the old file and at most that one; the next writer of the
/// same path removes it. No other file is touched. A path that names a device or pipe is written directly; a
/// link is followed unless it was put there after `check_writable`. An existing file keeps its mode. Throws
/// FileError when the place cannot be written (no such directory, no permission, a read-only file, a
/// directory, a loop of links, a name that is too long), SystemError when the system refuses (disk full, file
/// size limit, another writer of the same path).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  /// Removes what was written unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;  // one writer of one file
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Syncs and renames. Once. Throws SystemError, too, when the file is in its place but its directory could
  /// not be synced: it may then be lost with the power.
  void commit();

 private:
  friend void commit_together(std::initializer_list<std::reference_wrapper<AtomicFile>> files);

  [[nodiscard]] int file() const noexcept;
  void sync() const;
  void replace();
  void sync_folder() const;

  std::string path_;                                    // as given, for messages
  std::string target_;                                  // links resolved
  std::unique_ptr<detail::UnfinishedFile> unfinished_;  // null when written directly
  int direct_ = -1;
};

/// Commits files that belong together: all are synced first, then renamed back to back, in their order. A
/// file system renames one at a time: a process that is killed between two renames leaves a new file beside
/// an old one, so such files name each other by a checksum.
void commit_together(std::initializer_list<std::reference_wrapper<AtomicFile>> files);

/// Throws what writing `path` would throw, as far as that can be known before: by a file of 4096 bytes beside
/// it, which is removed again. What is at `path` is not touched; devices and pipes are not opened.
void check_writable(const std::string& path);

/// Writes `contents` to `path` as above.
void write_file(const std::string& path, std::string_view contents);

/// The bytes of a regular file. Throws FileError when it cannot be read or is longer than `limit` bytes.
[[nodiscard]] std::string read_file(const std::string& path, std::int64_t limit = std::int64_t{64} << 20);

}  // namespace fq
