#pragma once

/// A text file that grows by whole lines: what a process that is killed leaves lacks at most the end of the
/// last one.

#include <string>
#include <string_view>

namespace fq {

class LineFile {
 public:
  /// Opens the file to add to, or makes it. Throws FileError for a link, which is not followed, and FileError
  /// and SystemError as AtomicFile.
  explicit LineFile(std::string path);
  ~LineFile();
  LineFile(const LineFile&) = delete;  // owns a descriptor
  LineFile& operator=(const LineFile&) = delete;

  /// Adds `line` and a line end by one call of the system. Throws SystemError where not all of it was taken
  /// (a full disk).
  void add(std::string_view line);
  /// The same for bytes that are no text.
  void add_bytes(std::string_view bytes);
  /// What was added is safe from a loss of power, as far as the file system syncs. Throws SystemError.
  void sync() const;

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace fq
