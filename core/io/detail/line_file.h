#pragma once

/// A text file that grows by whole lines. If the process is killed, at most the end of the last line is
/// missing.
/// last one.

#include <string>
#include <string_view>

namespace fq {

class LineFile {
 public:
  /// Opens the file for appending, or creates it. Throws FileError for a link, and FileError and SystemError
  /// as AtomicFile.
  explicit LineFile(std::string path);
  ~LineFile();
  LineFile(const LineFile&) = delete;  // owns a descriptor
  LineFile& operator=(const LineFile&) = delete;

  /// Appends `line` and a line end with one system call. Throws SystemError if only a part was written (disk
  /// full).
  void add(std::string_view line);
  /// As `add`, for bytes that are not text.
  void add_bytes(std::string_view bytes);
  /// Syncs the file to disk, as far as the file system supports it. Throws SystemError.
  void sync() const;

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace fq
