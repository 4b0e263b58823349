#pragma once

/// The HDF5 C API with owners instead of identifiers. Needs <hdf5.h>.

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#define H5_USE_110_API  // newer HDF5 keeps the calls of 1.10 under this name
#include <hdf5.h>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail::h5 {

/// Lock for calls of HDF5, which may be built without thread safety. Nests. Also stops HDF5 from printing
/// and from loading filter plugins.
class Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;  // scoped
  Lock& operator=(const Lock&) = delete;

 private:
  std::lock_guard<std::recursive_mutex> guard_;
  H5E_auto2_t printer_ = nullptr;
  void* printer_data_ = nullptr;
  unsigned plugins_ = 0;
};

/// Returns HDF5's name of an object. The root is "/" for HDF5 and "" here. Valid for the lifetime of
/// `object`.
[[nodiscard]] inline const char* object_name(const std::string& object) {
  return object.empty() ? "/" : object.c_str();
}

/// Owns an identifier, which `Close` releases. The null handle holds -1.
template <herr_t (*Close)(hid_t)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(hid_t id) noexcept : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, H5I_INVALID_HID)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle() {
    if (id_ < 0) return;
    const Lock lock;
    Close(id_);
  }

  [[nodiscard]] hid_t get() const noexcept { return id_; }
  explicit operator bool() const noexcept { return id_ >= 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
};

using File = Handle<H5Fclose>;
using Object = Handle<H5Oclose>;
using Dataset = Handle<H5Dclose>;
using Space = Handle<H5Sclose>;
using Type = Handle<H5Tclose>;
using Attribute = Handle<H5Aclose>;
using Properties = Handle<H5Pclose>;

/// Returns HDF5's description of its last failure, in one line. The Lock of the failed call must still be
/// held.
[[nodiscard]] std::string last_error();
/// Throws FileError(path, dataset) with `what` and `last_error()`.
[[noreturn]] void fail(const std::string& path, const std::string& dataset, std::string_view what);
/// Returns `result` if it is not negative, else calls `fail`.
template <class Result>
Result check(Result result, const std::string& path, const std::string& dataset, std::string_view what) {
  if (result < 0) [[unlikely]]
    fail(path, dataset, what);
  return result;
}

/// Another file was renamed over the file to be opened.
class Replaced : public FileError {
 public:
  using FileError::FileError;
};

/// Opens a file for reading, without HDF5's locks: fakequant locks files while it saves them. Throws a
/// one-line FileError for a missing, truncated, damaged or foreign file, and Replaced if the path no longer
/// names `file`.
[[nodiscard]] File open(const FileReader& file);
/// Opens the file that has this path now.
[[nodiscard]] File open(const std::string& path);
/// Returns the sizes of a simple or scalar dataspace; throws FileError for others.
[[nodiscard]] Shape dataspace_shape(hid_t space, const std::string& path, const std::string& dataset);
/// Returns the memory type for elements of `dtype` (8 bits and more). Floats without an HDF5 type are stored
/// as integers.
[[nodiscard]] hid_t storage_type(DType dtype);
/// IEEE binary16, little endian.
[[nodiscard]] Type half_type();

}  // namespace fq::detail::h5
