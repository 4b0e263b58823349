#pragma once

/// Bytes of a regular file, by position.

#include <cstddef>
#include <cstdint>
#include <string>

namespace fq::detail {

class FileReader {
 public:
  /// Throws FileError when there is no such file, it is not a regular one or may not be read. Does not wait
  /// for pipes and devices.
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(const FileReader&) = delete;  // owns the descriptor
  FileReader& operator=(const FileReader&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  /// Whether `descriptor` is open on this very file, which another may have been renamed over meanwhile.
  [[nodiscard]] bool is_same(int descriptor) const noexcept;
  /// Reads exactly `bytes` bytes from `offset`. Throws FileError when the file has fewer.
  void read(std::int64_t offset, void* data, std::size_t bytes) const;
  /// CRC-32C of a part, read in pieces. Throws as `read`.
  [[nodiscard]] std::uint32_t checksum(std::int64_t offset, std::int64_t bytes) const;

 private:
  std::string path_;
  std::int64_t size_ = 0;
  int file_ = -1;
};

// Kinds of files, for messages about a file of another kind than expected.

/// Whether it begins as HDF5 files do, at byte 0 or behind a user block.
[[nodiscard]] bool has_hdf5_signature(const FileReader& file);

/// "a NumPy array", "a PNG image", "a directory of 12 .png files", by the first bytes, or else by the name;
/// "a text file" for what is printable, empty where it is not known or cannot be read. Never throws.
[[nodiscard]] std::string file_kind(const std::string& path);

}  // namespace fq::detail
