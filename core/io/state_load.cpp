#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/check.h"
#include "fakequant/core/io/crc32c.h"
#include "fakequant/core/io/hdf5.h"
#include "fakequant/core/io/state_file.h"
#include "fakequant/core/io/state_header.h"

namespace fq {
namespace {

namespace h5 = detail::h5;

struct Item {
  std::int64_t index;
  std::string name;
};

herr_t collect(hid_t, const char* name, const H5O_info_t* info, void* items) {
  if (info->type == H5O_TYPE_DATASET) static_cast<std::vector<Item>*>(items)->push_back({0, name});
  return 0;
}

class Reader {
 public:
  Reader(std::string path, std::int64_t bytes)
      : path_(std::move(path)), bytes_(bytes), file_(h5::open(path_)) {}

  StateDict read() {
    std::vector<Item> items;
    const auto visit = H5Ovisit(file_.get(), H5_INDEX_NAME, H5_ITER_NATIVE, collect, &items);
    h5::check(visit, path_, "", "cannot be listed");
    for (auto& item : items) item.index = integer(open(item.name), item.name, "index");
    std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
    StateDict state;
    for (const auto& item : items) put(state, item.name);
    return state;
  }

 private:
  [[noreturn]] void refuse(const std::string& dataset, const std::string& why) const {
    throw FileError(path_, dataset, fmt::format("[load_state] {}:{} {}", path_, dataset, why));
  }

  h5::Dataset open(const std::string& name) const {
    return h5::Dataset(
        h5::check(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT), path_, name, "cannot be opened"));
  }

  h5::Attribute attribute(const h5::Dataset& dataset, const std::string& name, const char* key) const {
    return h5::Attribute(
        h5::check(H5Aopen(dataset.get(), key, H5P_DEFAULT), path_, name, "lacks an attribute"));
  }

  std::int64_t integer(const h5::Dataset& dataset, const std::string& name, const char* key) const {
    const auto attribute_handle = attribute(dataset, name, key);
    const h5::Space space(H5Aget_space(attribute_handle.get()));
    if (H5Sget_simple_extent_npoints(space.get()) != 1)
      refuse(name, "has an attribute of more than one value");
    std::int64_t value = 0;
    h5::check(H5Aread(attribute_handle.get(), H5T_NATIVE_INT64, &value), path_, name,
              "has an unreadable attribute");
    return value;
  }

  std::string text(const h5::Dataset& dataset, const std::string& name, const char* key) const {
    const auto attribute_handle = attribute(dataset, name, key);
    const h5::Type type(H5Aget_type(attribute_handle.get()));
    const h5::Space space(H5Aget_space(attribute_handle.get()));
    if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 ||
        H5Sget_simple_extent_npoints(space.get()) != 1)
      refuse(name, "has an attribute that is not a text");
    std::string value(H5Tget_size(type.get()), '\0');
    h5::check(H5Aread(attribute_handle.get(), type.get(), value.data()), path_, name,
              "has an unreadable attribute");
    return value.substr(0, value.find('\0'));
  }

  void read_checked(const h5::Dataset& dataset, const std::string& name, hid_t type, std::int64_t bytes,
                    void* to) const {
    if (bytes > 0)
      h5::check(H5Dread(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to), path_, name,
                "is unreadable");
    const auto crc = static_cast<std::int64_t>(crc32c(to, static_cast<std::size_t>(bytes)));
    if (crc != integer(dataset, name, "crc32c")) refuse(name, "is damaged: its checksum differs");
  }

  void put(StateDict& state, const std::string& name) const {
    const auto dataset = open(name);
    const h5::Type type(H5Dget_type(dataset.get()));
    if (H5Tget_class(type.get()) == H5T_STRING)
      put_attributes(state, name, dataset, type);
    else
      state.set(name, read_tensor(name, dataset, type));
  }

  void put_attributes(StateDict& state, const std::string& name, const h5::Dataset& dataset,
                      const h5::Type& type) const {
    const auto bytes = static_cast<std::int64_t>(H5Tget_size(type.get()));
    const h5::Space space(H5Dget_space(dataset.get()));
    if (name != "attributes" || H5Tis_variable_str(type.get()) != 0 || bytes > bytes_ ||
        H5Sget_simple_extent_npoints(space.get()) != 1)
      refuse(name, "is a text where a tensor belongs");
    std::string text(static_cast<std::size_t>(bytes), '\0');
    read_checked(dataset, name, type.get(), bytes, text.data());
    const auto attributes = nlohmann::json::parse(text);
    for (const auto& item : attributes.items()) state.set_attribute(item.key(), item.value());
  }

  Tensor read_tensor(const std::string& name, const h5::Dataset& dataset, const h5::Type& type) const {
    const DType dtype = dtype_from_name(text(dataset, name, "dtype"));
    const h5::Space space(H5Dget_space(dataset.get()));
    const Shape stored = h5::shape_of(space.get(), path_, name);
    const bool packed = bit_width(dtype) < 8;
    const Shape shape = packed ? nlohmann::json::parse(text(dataset, name, "shape")).get<Shape>() : stored;
    if (H5Tequal(type.get(), h5::storage_type(dtype)) <= 0) refuse(name, "is not stored as its dtype says");
    const std::int64_t bytes = numel(stored) * static_cast<std::int64_t>(H5Tget_size(type.get()));
    if (numel(shape) > (std::int64_t{1} << 60) || byte_size(dtype, numel(shape)) != bytes || bytes > bytes_)
      refuse(name,
             fmt::format("claims {} {}, the file has {} bytes", fq::name(dtype), to_string(shape), bytes_));
    Tensor tensor = Tensor::empty(shape, dtype);
    read_checked(dataset, name, h5::storage_type(dtype), bytes, tensor.mutable_raw());
    return tensor;
  }

  std::string path_;
  std::int64_t bytes_;
  h5::File file_;
};

void check_kind(const std::string& path, const std::string& found, std::string_view wanted) {
  if (wanted.empty() || wanted == found) return;
  throw FileError(path, "",
                  fmt::format("[load_state] {} is a file of {}, expected one of {}", path, found, wanted));
}

}  // namespace

StateDict load_state(const std::string& path, std::string_view kind) {
  const detail::FileReader file(path);
  const auto header = detail::read_header(file);
  check_kind(path, header.kind, kind);
  try {
    verify_body(file, header);
    const h5::Lock lock;
    return Reader(path, file.size()).read();
  } catch (const nlohmann::json::exception&) {
    throw FileError(path, "attributes", fmt::format("[load_state] {} holds JSON that cannot be read", path));
  } catch (const ArgumentError& error) {
    throw FileError(path, "", fmt::format("[load_state] {} is not well formed: {}", path, error.what()));
  }
}

StateFileInfo state_file_info(const std::string& path) {
  const detail::FileReader file(path);
  const auto header = detail::read_header(file);
  return {header.kind, header.version, file.size()};
}

}  // namespace fq
