#include <nlohmann/json.hpp>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/hdf5_image.h"
#include "fakequant/core/io/detail/state_header.h"
#include "fakequant/core/io/state_dict.h"

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
