#pragma once

/// A new HDF5 file in memory, so that every byte that reaches the disk is written, checked and synced by us:
/// HDF5 cannot recover from a disk that fills up while it writes. It is not a public header: it needs
/// <hdf5.h>.

#include <cstddef>
#include <memory>
#include <span>

#include "fakequant/core/io/detail/hdf5.h"

namespace fq::detail::h5 {

class Image {
 public:
  /// An empty file after a user block of `user_block` bytes (512 or a larger power of two).
  /// Link names may be any path: groups are made on the way.
  explicit Image(std::size_t user_block);
  ~Image();
  Image(const Image&) = delete;  // HDF5 holds the address of the buffer
  Image& operator=(const Image&) = delete;

  [[nodiscard]] hid_t file() const noexcept { return file_.get(); }
  /// Makes a contiguous dataset of the file type `type` and writes `data` (of the same type) to it.
  [[nodiscard]] Dataset write(const std::string& name, hid_t type, const Shape& shape, const void* data);
  /// Where in the file the elements of a written dataset begin; 0 for one without elements.
  [[nodiscard]] static std::int64_t offset(const Dataset& dataset);
  /// Everything written so far, user block included, valid until the next call of anything here.
  [[nodiscard]] std::span<std::byte> bytes();

 private:
  struct Buffer;
  std::unique_ptr<Buffer> buffer_;
  File file_;
};

/// Attributes of one value.
void write_attribute(hid_t object, const char* name, std::int64_t value);
void write_attribute(hid_t object, const char* name, std::string_view value);

}  // namespace fq::detail::h5
