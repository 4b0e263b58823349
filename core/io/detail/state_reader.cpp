#include "fakequant/core/io/detail/state_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <variant>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/hdf5.h"
#include "fakequant/core/io/detail/hdf5_links.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

constexpr std::size_t kLongestText = 1024;  // of an attribute of a dataset

/// One dataset of the file.
class Part {
 public:
  Part(const FileReader& file, const std::string& name, const h5::Dataset& dataset)
      : file_(file), name_(name), dataset_(dataset), type_(H5Dget_type(dataset.get())) {
    h5::check(type_.get(), file_.path(), name_, "has no type");
    check_layout();
  }

  std::int64_t integer(const char* key) const {
    const auto attribute = open_attribute(key);
    const h5::Type type(H5Aget_type(attribute.get()));
    if (H5Tget_class(type.get()) != H5T_INTEGER)
      refuse(fmt::format("has an attribute '{}' that is no integer", key));
    std::int64_t value = 0;
    h5::check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), file_.path(), name_,
              "has an unreadable attribute");
    return value;
  }

  bool is_text() const { return H5Tget_class(type_.get()) == H5T_STRING; }

  nlohmann::json attributes() const {
    const std::size_t bytes = H5Tget_size(type_.get());
    if (name_ != "attributes" || H5Tis_variable_str(type_.get()) != 0 || !shape().empty())
      refuse("is a text where a tensor belongs");
    check_stored(static_cast<std::int64_t>(bytes));
    std::string text(bytes, '\0');
    read(type_.get(), text.data(), text.size());
    auto attributes = parse_json<nlohmann::json>(text);
    if (!attributes.is_object()) refuse("is JSON, but no object");
    return attributes;
  }

  Tensor tensor() const {
    const DType dtype = dtype_from_name(text("dtype"));
    if (H5Tequal(type_.get(), h5::storage_type(dtype)) <= 0) refuse("is not stored as its dtype says");
    const Shape stored = shape();
    const std::int64_t bytes = numel(stored) * static_cast<std::int64_t>(H5Tget_size(type_.get()));
    const Shape logical = bit_width(dtype) < 8 ? packed_shape() : stored;
    check_stored(bytes);
    if (numel(logical) > std::int64_t{1} << 56 || byte_size(dtype, numel(logical)) != bytes)
      refuse(fmt::format("claims {} {}, the file has {} bytes of it", fq::name(dtype), to_string(logical),
                         bytes));
    Tensor tensor = Tensor::empty(logical, dtype);
    read(h5::storage_type(dtype), tensor.mutable_raw(), static_cast<std::size_t>(bytes));
    return tensor;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw FileError(file_.path(), name_,
                    fmt::format("[load_state] {}:{} {}", file_.path(), one_line_name(name_), why));
  }

  void check_layout() const {
    const h5::Properties creation(H5Dget_create_plist(dataset_.get()));
    h5::check(creation.get(), file_.path(), name_, "has unreadable properties");
    if (H5Pget_layout(creation.get()) != H5D_CONTIGUOUS || H5Pget_external_count(creation.get()) != 0)
      refuse("is not stored in one piece, as fakequant stores it");
  }

  void check_stored(std::int64_t bytes) const {
    const hsize_t stored = H5Dget_storage_size(dataset_.get());
    const haddr_t begin = bytes > 0 ? H5Dget_offset(dataset_.get()) : 0;
    const auto size = static_cast<hsize_t>(file_.size());
    if (stored < static_cast<hsize_t>(bytes) || begin > size || stored > size - begin)
      refuse(
          fmt::format("claims {} bytes, {} are stored of it in a file of {}", bytes, stored, file_.size()));
  }

  Shape shape() const {
    const h5::Space space(H5Dget_space(dataset_.get()));
    return h5::shape_of(space.get(), file_.path(), name_);
  }

  h5::Attribute open_attribute(const char* key) const {
    h5::Attribute attribute(h5::check(H5Aopen(dataset_.get(), key, H5P_DEFAULT), file_.path(), name_,
                                      fmt::format("lacks an attribute '{}'", key)));
    const h5::Space space(H5Aget_space(attribute.get()));
    if (H5Sget_simple_extent_npoints(space.get()) != 1)
      refuse(fmt::format("has an attribute '{}' that is not one value", key));
    return attribute;
  }

  std::string text(const char* key) const {
    const auto attribute = open_attribute(key);
    const h5::Type type(H5Aget_type(attribute.get()));
    const std::size_t bytes = H5Tget_size(type.get());
    if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 || bytes > kLongestText)
      refuse(fmt::format("has an attribute '{}' that is not a short text", key));
    std::string value(bytes, '\0');
    h5::check(H5Aread(attribute.get(), type.get(), value.data()), file_.path(), name_,
              "has an unreadable attribute");
    return value.substr(0, value.find('\0'));
  }

  Shape packed_shape() const {
    const auto sizes = parse_json<nlohmann::json>(text("shape"));
    const auto is_size = [](const auto& size) {
      return size.is_number_unsigned() && size <= std::int64_t{1} << 56;
    };
    if (!sizes.is_array() || !std::ranges::all_of(sizes, is_size))
      refuse("has an attribute 'shape' that is no list of sizes");
    return sizes.get<Shape>();
  }

  void read(hid_t type, void* to, std::size_t bytes) const {
    if (bytes > 0)
      h5::check(H5Dread(dataset_.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to), file_.path(), name_,
                "is unreadable");
    if (std::int64_t{crc32c(to, bytes)} != integer("crc32c")) refuse("is damaged: its checksum differs");
  }

  const FileReader& file_;
  const std::string& name_;
  const h5::Dataset& dataset_;
  h5::Type type_;
};

struct Item {
  std::int64_t index;
  std::string name;
  std::variant<Tensor, nlohmann::json> value;
};

Item read_item(const FileReader& file, const std::string& name, const h5::Dataset& dataset) {
  const Part part(file, name, dataset);
  const auto refuse = [&](const char* why) {
    throw FileError(
        file.path(), name,
        fmt::format("[load_state] {}:{} is not well formed: {}", file.path(), one_line_name(name), why));
  };
  try {
    const std::int64_t index = part.integer("index");
    if (part.is_text()) return {index, name, part.attributes()};
    return {index, name, part.tensor()};
  } catch (const ArgumentError& error) {
    refuse(error.what());
  } catch (const nlohmann::json::exception& error) {
    refuse("it holds JSON that cannot be read");
  }
  return {};
}

}  // namespace

StateDict read_state(const FileReader& file) {
  const h5::Lock lock;
  const h5::File opened = h5::open(file);
  std::vector<Item> items;
  h5::for_each_dataset(opened.get(), file.path(), [&](const std::string& name, const h5::Dataset& dataset) {
    items.push_back(read_item(file, name, dataset));
  });
  std::ranges::sort(items, {}, &Item::index);
  StateDict state;
  for (auto& item : items) {
    if (auto* tensor = std::get_if<Tensor>(&item.value))
      state.set(std::move(item.name), std::move(*tensor));
    else
      for (auto& attribute : std::get<nlohmann::json>(item.value).items())
        state.set_attribute(attribute.key(), std::move(attribute.value()));
  }
  return state;
}

}  // namespace fq::detail
