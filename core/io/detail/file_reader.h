#pragma once

/// Reads a regular file at any position.

#include <cstddef>
#include <cstdint>
#include <string>

namespace fq::detail {

class FileReader {
 public:
  /// Throws FileError if the file does not exist, is not a regular file or may not be read. Does not wait
  /// for pipes and devices.
  explicit FileReader(std::string path);
  ~FileReader();
  FileReader(const FileReader&) = delete;  // owns the descriptor
  FileReader& operator=(const FileReader&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  /// Whether `descriptor` is open on this file. Another file may have been renamed to its path meanwhile.
  [[nodiscard]] bool is_same(int descriptor) const noexcept;
  /// Reads exactly `bytes` bytes from `offset`. Throws FileError if the file has fewer.
  void read(std::int64_t offset, void* data, std::size_t bytes) const;
  /// Returns the CRC-32C of a part of the file. Throws as `read`.
  [[nodiscard]] std::uint32_t checksum(std::int64_t offset, std::int64_t bytes) const;

 private:
  std::string path_;
  std::int64_t size_ = 0;
  int file_ = -1;
};

// Kinds of files, for messages about a file of another kind than expected.

/// Whether the file begins like an HDF5 file, at byte 0 or after a user block.
[[nodiscard]] bool has_hdf5_signature(const FileReader& file);

/// Returns the kind of a file from its first bytes, or else its name: "a NumPy array", "a PNG image", "a
/// directory of 12 .png files". Returns "a text file" for printable content, and an empty string if the kind
/// is unknown or the file cannot be read. Never throws.
[[nodiscard]] std::string file_kind(const std::string& path);

}  // namespace fq::detail
