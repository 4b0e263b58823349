#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/hdf5.h"
#include "fakequant/core/io/detail/state_header.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::detail::h5 {
namespace {

/// A new HDF5 file in memory, so that fakequant writes, checks and syncs every byte on disk itself. HDF5
/// cannot recover if the disk fills up during a write.
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

/// Writes an attribute with a single value.
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

}  // namespace
}  // namespace fq::detail::h5

namespace fq {
namespace {

namespace h5 = detail::h5;

// In HDF5 a name is either a dataset or a group.
void check_names(const StateDict& state) {
  std::set<std::string, std::less<>> taken{"attributes"};
  for (const auto& name : state.names())
    FQ_CHECK(taken.insert(name).second, "save_state",
             "a tensor is named '{}': this name is reserved for attributes", name);
  for (const auto& name : state.names())
    for (auto slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1))
      FQ_CHECK(!taken.contains(name.substr(0, slash)), "save_state",
               "'{}' is below '{}', which is a tensor or reserved for attributes: rename one", name,
               name.substr(0, slash));
}

std::string attributes_text(const StateDict& state) {
  try {
    return state.attributes().dump(1);
  } catch (const nlohmann::json::exception&) {
    throw ArgumentError("[save_state] an attribute holds text that is not UTF-8: encode it first");
  }
}

class Writer {
 public:
  explicit Writer(std::string_view kind) : kind_(kind), image_(detail::kHeaderBytes) {
    // For users of HDF5 tools. Our reader uses the header and the listing.
    h5::write_attribute(image_.file(), "kind", kind);
    h5::write_attribute(image_.file(), "format_version", std::int64_t{detail::kFormatVersion});
  }

  void put(const std::string& name, const Tensor& given) {
    FQ_CHECK(!given.device().is_meta(), "save_state", "'{}' is {}: a tensor on meta has no bytes to save",
             name, given.describe());
    const Tensor tensor = given.to(Device::cpu()).to(Layout::row_major);
    // HDF5 has no types below 8 bits: packed codes are bytes, with their shape in an attribute.
    const bool packed = bit_width(tensor.dtype()) < 8;
    const Shape shape = packed ? Shape{tensor.nbytes()} : tensor.shape();
    const auto dataset =
        put_bytes(name, h5::storage_type(tensor.dtype()), shape, tensor.raw(), tensor.nbytes());
    listing_.back().dtype = fq::name(tensor.dtype());
    listing_.back().shape = tensor.shape();
    h5::write_attribute(dataset.get(), "dtype", fq::name(tensor.dtype()));
    if (packed) h5::write_attribute(dataset.get(), "shape", nlohmann::json(tensor.shape()).dump());
  }

  // Attributes are one dataset of JSON text: HDF5 limits its own attributes to 64 KiB.
  void put(const std::string& name, const std::string& text) {
    const h5::Lock lock;
    const h5::Type type(FQ_CALL(H5Tcopy(H5T_C_S1), "save_state"));
    FQ_CALL(H5Tset_size(type.get(), text.size()), "save_state");
    FQ_CALL(H5Tset_cset(type.get(), H5T_CSET_UTF8), "save_state");
    // Padding without a terminating zero, so that the size is the length of the text.
    FQ_CALL(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "save_state");
    (void)put_bytes(name, type.get(), {}, text.data(), static_cast<std::int64_t>(text.size()));
    listing_.back().dtype = detail::kListedJson;
  }

  void finish(AtomicFile& file) {
    const auto image = image_.bytes();
    const std::string listing = detail::encode(listing_);
    detail::StateHeader header;
    // The checksum continues over image and listing, which follow each other in the file.
    header.body_crc = crc32c(image.data() + detail::kHeaderBytes, image.size() - detail::kHeaderBytes);
    header.body_crc = crc32c(listing.data(), listing.size(), header.body_crc);
    header.listing_bytes = static_cast<std::int64_t>(listing.size());
    header.body_bytes = static_cast<std::int64_t>(image.size()) - detail::kHeaderBytes + header.listing_bytes;
    header.listing_crc = crc32c(listing.data(), listing.size());
    header.kind = kind_;
    const auto block = encode(header);
    file.write(block.data(), block.size());
    file.write(image.data() + detail::kHeaderBytes, image.size() - detail::kHeaderBytes);
    file.write(listing);
  }

 private:
  h5::Dataset put_bytes(const std::string& name, hid_t type, const Shape& shape, const void* data,
                        std::int64_t bytes) {
    auto dataset = image_.write(name, type, shape, data);
    const std::uint32_t crc = crc32c(data, static_cast<std::size_t>(bytes));
    h5::write_attribute(dataset.get(), "crc32c", std::int64_t{crc});
    // HDF5 sorts names; the index keeps the order of the state.
    h5::write_attribute(dataset.get(), "index", static_cast<std::int64_t>(listing_.size()));
    listing_.push_back({name, bytes > 0 ? h5::Image::offset(dataset) : detail::kHeaderBytes, bytes, crc});
    return dataset;
  }

  std::string kind_;
  h5::Image image_;
  std::vector<detail::ListedDataset> listing_;
};

}  // namespace

void save_state(const std::string& path, const StateDict& state, std::string_view kind) {
  AtomicFile file(path);
  save_state(file, state, kind);
  file.commit();
}

void save_state(AtomicFile& file, const StateDict& state, std::string_view kind) {
  check_names(state);
  Writer writer(kind);
  writer.put("attributes", attributes_text(state));
  for (const auto& [name, tensor] : state.tensors()) writer.put(name, tensor);
  writer.finish(file);
}

}  // namespace fq
