#include "fakequant/core/io/detail/hdf5.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/file_reader.h"

namespace fq::detail::h5 {
namespace {

// The C library is not thread-safe in usual builds. Recursive, because helpers lock for themselves.
std::recursive_mutex& mutex() {
  static auto* const instance = new std::recursive_mutex;  // handles may be closed by static destructors
  return *instance;
}

int locks_held = 0;  // number held by the thread that owns the mutex

/// File access without locks. A small sieve buffer avoids reading 64 KiB for a smaller row.
Properties read_access() {
  Properties access(FQ_CALL(H5Pcreate(H5P_FILE_ACCESS), "hdf5"));
  FQ_CALL(H5Pset_fapl_sec2(access.get()), "hdf5");
  FQ_CALL(H5Pset_sieve_buf_size(access.get(), 1), "hdf5");
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
  FQ_CALL(H5Pset_file_locking(access.get(), false, true), "hdf5");
#else
  ::setenv("HDF5_USE_FILE_LOCKING", "FALSE", 0);  // these versions read it at every open
#endif
  return access;
}

/// Removes the plugin folders for its lifetime. HDF5 1.14 loads all plugins to find one that can open an
/// unknown file, even if H5PLset_loading_state disables this.
class NoPluginFolders {
 public:
  NoPluginFolders() {
    unsigned count = 0;
    for (H5PLsize(&count); count > 0 && H5PLget(0, nullptr, 0) > 0; --count) {
      std::string path(std::size_t(H5PLget(0, nullptr, 0)), '\0');
      H5PLget(0, path.data(), path.size() + 1);
      if (H5PLremove(0) < 0) return;
      paths_.push_back(std::move(path));
    }
  }
  ~NoPluginFolders() {
    for (const auto& path : paths_) H5PLappend(path.c_str());
  }
  NoPluginFolders(const NoPluginFolders&) = delete;  // restores them

 private:
  std::vector<std::string> paths_;
};

herr_t keep_first(unsigned, const H5E_error2_t* error, void* text) {
  auto& kept = *static_cast<std::string*>(text);
  if (kept.empty() && error->desc != nullptr) kept = error->desc;
  return 0;
}

}  // namespace

Lock::Lock() : guard_(mutex()) {
  if (locks_held++ > 0) return;  // the calls below clear the error stack of last_error
  // The library never prints: the error stack becomes the message of an exception. Plugins are code from
  // outside, which a data file must not load.
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLget_loading_state(&plugins_);
  H5PLset_loading_state(0);
}

Lock::~Lock() {
  if (--locks_held > 0) return;
  H5PLset_loading_state(plugins_);
  H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_);
}

std::string last_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  return text.empty() ? "HDF5 gives no reason" : text;
}

void fail(const std::string& path, const std::string& dataset, std::string_view what) {
  const std::string place = dataset.empty() ? path : path + ":" + dataset;
  throw FileError(path, dataset, fmt::format("[hdf5] {} {}: {}", place, what, last_error()));
}

File open(const FileReader& file) {
  const std::string& path = file.path();
  if (!has_hdf5_signature(file))
    throw FileError(path, "", fmt::format("[hdf5] {} is not an HDF5 file", path));
  const Lock lock;
  const NoPluginFolders without;
  const Properties access = read_access();
  File opened(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()));
  if (!opened) opened = File(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));  // opened elsewhere too
  if (!opened) fail(path, "", "is a damaged or truncated HDF5 file");
  void* descriptor = nullptr;
  check(H5Fget_vfd_handle(opened.get(), H5P_DEFAULT, &descriptor), path, "", "has no descriptor");
  // `file` checked the path, HDF5 opened it again: both must have opened the same file.
  if (!file.is_same(*static_cast<const int*>(descriptor)))
    throw Replaced(path, "", fmt::format("[hdf5] {} was replaced while it was opened: read a copy", path));
  return opened;
}

File open(const std::string& path) {
  // A writer may replace the file by a rename between the two openings. The next attempt sees the new file.
  constexpr int kMostAttempts = 100;
  for (int attempt = 1; attempt < kMostAttempts; ++attempt) {
    try {
      return open(FileReader(path));
    } catch (const Replaced&) {
    }
  }
  return open(FileReader(path));
}

Shape dataspace_shape(hid_t space, const std::string& path, const std::string& dataset) {
  const auto kind = H5Sget_simple_extent_type(space);
  if (kind != H5S_SIMPLE && kind != H5S_SCALAR)
    throw FileError(path, dataset,
                    fmt::format("[hdf5] {}:{} has no elements: write it with a shape", path, dataset));
  std::array<hsize_t, H5S_MAX_RANK> sizes{};
  const int rank =
      check(H5Sget_simple_extent_dims(space, sizes.data(), nullptr), path, dataset, "has no readable shape");
  // As the limit of Tensor. The check divides, because the product of claimed sizes could wrap.
  constexpr hsize_t kMost = hsize_t{1} << 60;
  hsize_t count = 1;
  for (int axis = 0; axis < rank; ++axis) {
    const hsize_t size = sizes[static_cast<std::size_t>(axis)];
    if (size > kMost || (size > 0 && count > kMost / size))
      throw FileError(path, dataset,
                      fmt::format("[hdf5] {}:{} claims more than 2^60 elements", path, dataset));
    count *= std::max<hsize_t>(size, 1);
  }
  return {sizes.begin(), sizes.begin() + rank};
}

hid_t storage_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return H5T_IEEE_F32LE;
    case DType::f64:
      return H5T_IEEE_F64LE;
    case DType::i8:
      return H5T_STD_I8LE;
    case DType::i16:
      return H5T_STD_I16LE;
    case DType::i32:
      return H5T_STD_I32LE;
    case DType::i64:
      return H5T_STD_I64LE;
    case DType::f16:
    case DType::bf16:
    case DType::u16:
      return H5T_STD_U16LE;
    default:
      return H5T_STD_U8LE;
  }
}

Type half_type() {
  Type type(H5Tcopy(H5T_IEEE_F32LE));
  // IEEE half: sign at bit 15, 5 bits of exponent from bit 10, 10 of mantissa from bit 0.
  FQ_CALL(H5Tset_fields(type.get(), 15, 10, 5, 0, 10), "hdf5");
  FQ_CALL(H5Tset_size(type.get(), 2), "hdf5");
  FQ_CALL(H5Tset_ebias(type.get(), 15), "hdf5");
  return type;
}

}  // namespace fq::detail::h5
