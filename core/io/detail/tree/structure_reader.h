#pragma once

/// Bytes and numbers of HDF5 structures, none of which is believed before it is looked at.

#include <cstdint>
#include <string>
#include <string_view>

#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail {

/// Addresses count from behind our header.
class StructureReader {
 public:
  explicit StructureReader(const FileReader& file) : file_(file) {}

  /// Throws FileError for what leads out of the file, and once more than four times its size was asked for,
  /// as structures then lie over each other.
  [[nodiscard]] std::string bytes(std::int64_t at, std::int64_t count);
  /// Little endian, of `count` bytes; beyond 2^63 negative. Throws FileError where `text` ends before them.
  [[nodiscard]] std::int64_t number(std::string_view text, std::int64_t at, int count) const;
  /// Throws FileError that names the file, and the object if `name` is one.
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

 private:
  const FileReader& file_;
  std::int64_t read_ = 0;
};

}  // namespace fq::detail
