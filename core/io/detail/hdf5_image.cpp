#include "fakequant/core/io/detail/hdf5_image.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "fakequant/core/detail/check.h"

namespace fq::detail::h5 {

// Memory that HDF5 allocates for the file. We own it until the file is closed.
struct Image::Buffer {
  std::byte* data = nullptr;

  static void* allocate(std::size_t bytes, H5FD_file_image_op_t, void* self) {
    auto* data = static_cast<std::byte*>(std::calloc(bytes, 1));
    static_cast<Buffer*>(self)->data = data;
    return data;
  }
  static void* resize(void* old, std::size_t bytes, H5FD_file_image_op_t, void* self) {
    auto* data = static_cast<std::byte*>(std::realloc(old, bytes));
    if (data != nullptr) static_cast<Buffer*>(self)->data = data;
    return data;
  }
  static herr_t release(void* data, H5FD_file_image_op_t, void*) {
    std::free(data);
    return 0;
  }
  static void* copy(void* to, const void* from, std::size_t bytes, H5FD_file_image_op_t, void*) {
    return std::memcpy(to, from, bytes);
  }
  // HDF5 copies and frees its properties, but the buffer has one owner: these callbacks do nothing.
  static void* same(void* self) { return self; }
  static herr_t keep(void*) { return 0; }
};

namespace {

constexpr std::size_t kGrowth = 4096;

Space make_dataspace(const Shape& shape) {
  FQ_CHECK(shape.size() <= H5S_MAX_RANK, "save_state", "{} has too many axes: HDF5 has at most {}",
           to_string(shape), H5S_MAX_RANK);
  const std::vector<hsize_t> sizes(shape.begin(), shape.end());
  return Space(FQ_CALL(shape.empty()
                           ? H5Screate(H5S_SCALAR)
                           : H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                       "save_state"));
}

}  // namespace

Image::Image(std::size_t user_block) : buffer_(std::make_unique<Buffer>()) {
  const Lock lock;
  const Properties access(FQ_CALL(H5Pcreate(H5P_FILE_ACCESS), "save_state"));
  const Properties creation(FQ_CALL(H5Pcreate(H5P_FILE_CREATE), "save_state"));
  H5FD_file_image_callbacks_t callbacks{Buffer::allocate, Buffer::copy, Buffer::resize, Buffer::release,
                                        Buffer::same,     Buffer::keep, buffer_.get()};
  // The file exists in memory only. Its checksums are computed there, and AtomicFile writes it in one go.
  FQ_CALL(H5Pset_fapl_core(access.get(), kGrowth, false), "save_state");
  FQ_CALL(H5Pset_file_image_callbacks(access.get(), &callbacks), "save_state");
  FQ_CALL(H5Pset_userblock(creation.get(), user_block), "save_state");
  file_ = File(FQ_CALL(H5Fcreate("fakequant", H5F_ACC_TRUNC, creation.get(), access.get()), "save_state"));
}

Image::~Image() = default;

Dataset Image::write(const std::string& name, hid_t type, const Shape& shape, const void* data) {
  const Lock lock;
  const Properties links(FQ_CALL(H5Pcreate(H5P_LINK_CREATE), "save_state"));
  const Properties creation(FQ_CALL(H5Pcreate(H5P_DATASET_CREATE), "save_state"));
  // Names are paths: "a/b/c" creates the groups "a" and "a/b".
  FQ_CALL(H5Pset_create_intermediate_group(links.get(), 1), "save_state");
  FQ_CALL(H5Pset_obj_track_times(creation.get(), false), "save_state");  // same state, same bytes
  const Space space = make_dataspace(shape);
  Dataset dataset(
      FQ_CALL(H5Dcreate2(file(), name.c_str(), type, space.get(), links.get(), creation.get(), H5P_DEFAULT),
              "save_state"));
  if (H5Sget_simple_extent_npoints(space.get()) > 0)
    FQ_CALL(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), "save_state");
  return dataset;
}

std::int64_t Image::offset(const Dataset& dataset) {
  const Lock lock;
  // An empty dataset has no place in the file.
  if (H5Dget_storage_size(dataset.get()) == 0) return 0;
  return static_cast<std::int64_t>(H5Dget_offset(dataset.get()));
}

std::span<std::byte> Image::bytes() {
  const Lock lock;
  FQ_CALL(H5Fflush(file(), H5F_SCOPE_GLOBAL), "save_state");
  hsize_t size = 0;  // a multiple of kGrowth
  FQ_CALL(H5Fget_filesize(file(), &size), "save_state");
  return {buffer_->data, static_cast<std::size_t>(size)};
}

void write_attribute(hid_t object, const char* name, std::int64_t value) {
  const Lock lock;
  const Space space(FQ_CALL(H5Screate(H5S_SCALAR), "save_state"));
  const Attribute attribute(
      FQ_CALL(H5Acreate2(object, name, H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), "save_state"));
  FQ_CALL(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), "save_state");
}

void write_attribute(hid_t object, const char* name, std::string_view value) {
  const Lock lock;
  const Type type(FQ_CALL(H5Tcopy(H5T_C_S1), "save_state"));
  const std::string text(value);
  // HDF5 has no strings of size 0: the terminating zero is stored too.
  FQ_CALL(H5Tset_size(type.get(), text.size() + 1), "save_state");
  FQ_CALL(H5Tset_cset(type.get(), H5T_CSET_UTF8), "save_state");
  const Space space(FQ_CALL(H5Screate(H5S_SCALAR), "save_state"));
  const Attribute attribute(
      FQ_CALL(H5Acreate2(object, name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), "save_state"));
  FQ_CALL(H5Awrite(attribute.get(), type.get(), text.c_str()), "save_state");
}

}  // namespace fq::detail::h5
