#pragma once

/// Atomic file writes: write to a temporary file, sync it, rename it and sync the directory.

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

/// Writes a new file ".NAME.fakequant-XXXXXX" in the directory of `path`; `commit` renames it to `path`. A
/// killed process leaves the old file and at most one temporary file, which the next writer of the same path
/// removes. No other file is touched. A device or pipe is written directly. A link is followed unless it was
/// created after `check_writable`. An existing file keeps its mode.
///
/// Throws FileError if the path cannot be written (no such directory, no permission, a read-only file, a
/// directory, a loop of links, a name that is too long). Throws SystemError for system limits (disk full,
/// file size limit, another writer of the same path).
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  /// Removes the temporary file unless it was committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;  // one writer of one file
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Syncs and renames. Call it once. Also throws SystemError if the file was renamed but its directory
  /// could not be synced; a power failure may then lose the file.
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

/// Commits files that belong together: syncs all of them, then renames them in order. Renames are not atomic
/// together: a process killed between two renames leaves a mix of new and old files. Such files therefore
/// store each other's checksum.
void commit_together(std::initializer_list<std::reference_wrapper<AtomicFile>> files);

/// Throws if writing `path` is certain to fail. Tests it with a temporary file of 4096 bytes in the same
/// directory. Does not touch the file at `path` and does not open devices or pipes.
void check_writable(const std::string& path);

/// Writes `contents` to `path` as AtomicFile does.
void write_file(const std::string& path, std::string_view contents);

/// Returns the bytes of a regular file. Throws FileError if it cannot be read or has more than `limit`
/// bytes.
[[nodiscard]] std::string read_file(const std::string& path, std::int64_t limit = std::int64_t{64} << 20);

}  // namespace fq
