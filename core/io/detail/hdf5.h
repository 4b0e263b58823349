#pragma once

/// The HDF5 C API with owners instead of identifiers: it needs <hdf5.h>.

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

/// Held around calls of HDF5, which need not be built for threads; nests. Keeps HDF5 from printing and from
/// loading filters as plug-ins meanwhile.
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

/// The name that HDF5 knows an object by: "/" for the root, whose name is empty here. Lives as long as
/// `object`.
[[nodiscard]] inline const char* place_of(const std::string& object) {
  return object.empty() ? "/" : object.c_str();
}

/// Owns an identifier that `Close` takes back; the null handle holds -1.
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

/// What HDF5 says of its last failure, in one line. The Lock of the failed call must still be held.
[[nodiscard]] std::string last_error();
/// Throws FileError(path, dataset) with `what` and `last_error()`.
[[noreturn]] void fail(const std::string& path, const std::string& dataset, std::string_view what);
/// `result` if it is not negative, else `fail`.
template <class Result>
Result check(Result result, const std::string& path, const std::string& dataset, std::string_view what) {
  if (result < 0) [[unlikely]]
    fail(path, dataset, what);
  return result;
}

/// Another file was renamed over the one that was to be opened.
class Replaced : public FileError {
 public:
  using FileError::FileError;
};

/// Opens a file to read, without HDF5's locks: who saves a file here holds one until it is there whole.
/// Throws a one-line FileError for a missing, truncated, damaged or other file, Replaced when the file of
/// that path is no longer `file`.
[[nodiscard]] File open(const FileReader& file);
/// Opens whichever file has that path.
[[nodiscard]] File open(const std::string& path);
/// The sizes of a simple or scalar dataspace; throws FileError for others.
[[nodiscard]] Shape shape_of(hid_t space, const std::string& path, const std::string& dataset);
/// The memory type that holds elements of `dtype` (8 bits and more): integers stand for the floats without an
/// HDF5 type.
[[nodiscard]] hid_t storage_type(DType dtype);
/// IEEE binary16, little endian.
[[nodiscard]] Type half_type();

}  // namespace fq::detail::h5
