#include "fakequant/core/io/detail/state_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/hdf5_tree.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

constexpr std::size_t kMostAxes = 32;  // as HDF5
constexpr std::int64_t kMostPartElements = std::int64_t{1} << 56;

/// One part of a file.
class StatePart {
 public:
  StatePart(const FileReader& file, const ListedDataset& entry) : file_(file), entry_(entry) {}

  [[nodiscard]] nlohmann::json attributes() const {
    if (entry_.name != "attributes") refuse("is a text where a tensor belongs");
    std::string text(static_cast<std::size_t>(entry_.bytes), '\0');
    read(text.data());
    auto attributes = parse_json<nlohmann::json>(text);
    if (!attributes.is_object()) refuse("is JSON, but no object");
    return attributes;
  }

  [[nodiscard]] Tensor tensor() const {
    const DType dtype = dtype_from_name(entry_.dtype);
    if (entry_.shape.size() > kMostAxes || byte_size(dtype, elements()) != entry_.bytes)
      refuse(fmt::format("claims {} {}, {} bytes are stored of it", fq::name(dtype), to_string(entry_.shape),
                         entry_.bytes));
    Tensor tensor = Tensor::empty(entry_.shape, dtype);
    read(tensor.mutable_raw());
    return tensor;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw FileError(file_.path(), entry_.name,
                    fmt::format("[load_state] {}:{} {}", file_.path(), one_line_name(entry_.name), why));
  }

 private:
  [[nodiscard]] std::int64_t elements() const {
    std::int64_t count = 1;
    bool none = false;
    for (const std::int64_t size : entry_.shape) {
      none |= size == 0;
      if (size > 0 && count > kMostPartElements / size) refuse("claims more than 2^56 elements");
      count *= std::max<std::int64_t>(size, 1);
    }
    return none ? 0 : count;
  }

  void read(void* to) const {
    const auto bytes = static_cast<std::size_t>(entry_.bytes);
    file_.read(entry_.offset, to, bytes);
    if (crc32c(to, bytes) != entry_.crc) refuse("is damaged: its checksum differs");
  }

  const FileReader& file_;
  const ListedDataset& entry_;
};

void put(StateDict& state, const FileReader& file, const ListedDataset& entry) {
  const StatePart part(file, entry);
  try {
    if (entry.dtype != kListedJson) {
      if (state.contains(entry.name)) part.refuse("is there twice");
      return state.set(entry.name, part.tensor());
    }
    auto attributes = part.attributes();
    for (auto& attribute : attributes.items())
      state.set_attribute(attribute.key(), std::move(attribute.value()));
  } catch (const ArgumentError& error) {
    part.refuse(fmt::format("is not well formed: {}", error.what()));
  } catch (const nlohmann::json::exception&) {
    part.refuse("holds JSON that cannot be read");
  }
}

[[noreturn]] void refuse_part(const FileReader& file, const std::string& name, const std::string& why) {
  throw FileError(file.path(), name,
                  fmt::format("[load_state] {}:{} {}", file.path(), one_line_name(name), why));
}

const std::string& text_of(const FileReader& file, const std::string& name, const TreeObject& object,
                           const char* key) {
  const auto found = object.texts.find(key);
  if (found == object.texts.end())
    refuse_part(file, name, fmt::format("lacks an attribute '{}' that is a text", key));
  return found->second;
}

Shape packed_shape(const FileReader& file, const std::string& name, const TreeObject& object) {
  Shape out;
  const auto sizes = parse_json<nlohmann::json>(text_of(file, name, object, "shape"));
  if (!sizes.is_array()) refuse_part(file, name, "has an attribute 'shape' that is no list of sizes");
  for (const auto& size : sizes) {
    if (!size.is_number_unsigned() || size > std::uint64_t{1} << 56)
      refuse_part(file, name, "has an attribute 'shape' that is no list of sizes");
    out.push_back(size.get<std::int64_t>());
  }
  return out;
}

/// Types and shapes for a listing that does not tell them, as of files from before it did.
void take_types_of_tree(const FileReader& file, std::vector<ListedDataset>& listing) {
  auto tree = read_hdf5_tree(file);
  for (auto& entry : listing) {
    const auto node = tree.extract(entry.name);
    if (node.empty()) refuse_part(file, entry.name, "is listed, and not there");
    const TreeObject& object = node.mapped();
    if (entry.bytes > 0 && object.elements != entry.offset - kHeaderBytes)
      refuse_part(file, entry.name, "is listed at another place than it is");
    entry.dtype = kListedJson;
    if (entry.name == "attributes") continue;
    entry.dtype = text_of(file, entry.name, object, "dtype");
    try {
      const bool packed = bit_width(dtype_from_name(entry.dtype)) < 8;
      entry.shape = packed ? packed_shape(file, entry.name, object) : object.shape;
    } catch (const ArgumentError& error) {
      refuse_part(file, entry.name, fmt::format("is not well formed: {}", error.what()));
    }
    if (std::ranges::any_of(entry.shape, [](std::int64_t size) { return size < 0; }))
      refuse_part(file, entry.name, "has a shape that is none");
  }
  if (!tree.empty()) refuse_part(file, tree.begin()->first, "is there, and not listed");
}

/// A small file cannot stand for many large parts.
void check_apart(const FileReader& file, const std::vector<ListedDataset>& listing) {
  std::vector<const ListedDataset*> parts;
  for (const auto& entry : listing)
    if (entry.bytes > 0) parts.push_back(&entry);
  std::ranges::sort(parts, {}, &ListedDataset::offset);
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (parts[i]->offset - parts[i - 1]->offset < parts[i - 1]->bytes)
      refuse_part(file, parts[i]->name, "lies over another part");
}

}  // namespace

StateDict read_state(const FileReader& file, const StateHeader& header) {
  auto listing = read_listing(file, header);
  const bool told = std::ranges::none_of(listing, [](const auto& entry) { return entry.dtype.empty(); });
  if (!told) take_types_of_tree(file, listing);
  check_apart(file, listing);
  StateDict state;
  for (const auto& entry : listing) put(state, file, entry);
  return state;
}

}  // namespace fq::detail
