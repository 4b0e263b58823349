#pragma once

/// Builds a new HDF5 file in memory, so that fakequant writes, checks and syncs every byte on disk itself.
/// HDF5 cannot recover if the disk fills up during a write. Not a public header: it needs <hdf5.h>.

#include <cstddef>
#include <memory>
#include <span>

#include "fakequant/core/io/detail/hdf5.h"

namespace fq::detail::h5 {

class Image {
 public:
  /// Creates an empty file after a user block of `user_block` bytes (512 or a larger power of two). Link
  /// names may be any path; missing groups are created.
  explicit Image(std::size_t user_block);
  ~Image();
  Image(const Image&) = delete;  // HDF5 holds the address of the buffer
  Image& operator=(const Image&) = delete;

  [[nodiscard]] hid_t file() const noexcept { return file_.get(); }
  /// Creates a contiguous dataset of the file type `type` and writes `data` (of the same type) to it.
  [[nodiscard]] Dataset write(const std::string& name, hid_t type, const Shape& shape, const void* data);
  /// Returns the file offset of the elements of a written dataset; 0 for a dataset without elements.
  [[nodiscard]] static std::int64_t offset(const Dataset& dataset);
  /// Returns the bytes written so far, including the user block. Valid until the next call of a member
  /// function.
  [[nodiscard]] std::span<std::byte> bytes();

 private:
  struct Buffer;
  std::unique_ptr<Buffer> buffer_;
  File file_;
};

/// Writes an attribute with a single value.
void write_attribute(hid_t object, const char* name, std::int64_t value);
void write_attribute(hid_t object, const char* name, std::string_view value);

}  // namespace fq::detail::h5
