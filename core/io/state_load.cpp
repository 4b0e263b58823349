#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/hdf5_tree.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/detail/state_header.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::detail {
namespace {

const std::string& text_attribute(const FileReader& file, const std::string& name, const TreeObject& object,
                                  const char* key) {
  const auto found = object.texts.find(key);
  if (found == object.texts.end()) refuse_part(file, name, fmt::format("has no text attribute '{}'", key));
  return found->second;
}

Shape packed_shape(const FileReader& file, const std::string& name, const TreeObject& object) {
  Shape out;
  const auto sizes = parse_json<nlohmann::json>(text_attribute(file, name, object, "shape"));
  if (!sizes.is_array()) refuse_part(file, name, "has an attribute 'shape' that is not a list of sizes");
  for (const auto& size : sizes) {
    const auto whole = whole_if<std::int64_t>(size, 0, kLargestListed);
    if (!whole) refuse_part(file, name, "has an attribute 'shape' that is not a list of sizes");
    out.push_back(*whole);
  }
  return out;
}

/// Reads the types from the HDF5 structures (hdf5_tree.h). Throws FileError if these and the listing differ.
void take_listed_types(const FileReader& file, std::vector<ListedDataset>& listing) {
  auto tree = read_hdf5_tree(file);
  for (auto& entry : listing) {
    const auto node = tree.extract(entry.name);
    if (node.empty()) refuse_part(file, entry.name, "is listed but missing");
    const TreeObject& object = node.mapped();
    if (entry.bytes > 0 && object.elements != entry.offset - kHeaderBytes)
      refuse_part(file, entry.name, "has another offset than listed");
    entry.dtype = kListedJson;
    if (entry.name == "attributes") continue;
    entry.dtype = text_attribute(file, entry.name, object, "dtype");
    try {
      const bool packed = bit_width(dtype_from_name(entry.dtype)) < 8;
      entry.shape = packed ? packed_shape(file, entry.name, object) : object.shape;
    } catch (const ArgumentError& error) {
      refuse_part(file, entry.name, fmt::format("is invalid: {}", error.what()));
    }
    if (std::ranges::any_of(entry.shape, [](std::int64_t size) { return size < 0; }))
      refuse_part(file, entry.name, "has an invalid shape");
  }
  if (!tree.empty()) refuse_part(file, tree.begin()->first, "is not listed");
}

constexpr std::size_t kMostAxes = 32;  // as HDF5
constexpr std::int64_t kMostPartElements = std::int64_t{1} << 56;

/// One part of a file.
class StatePart {
 public:
  StatePart(const FileReader& file, const ListedDataset& entry) : file_(file), entry_(entry) {}

  [[nodiscard]] nlohmann::json attributes() const {
    if (entry_.name != "attributes") refuse("is a text, expected a tensor");
    std::string text(static_cast<std::size_t>(entry_.bytes), '\0');
    read(text.data());
    auto attributes = parse_json<nlohmann::json>(text);
    if (!attributes.is_object()) refuse("is not a JSON object");
    return attributes;
  }

  [[nodiscard]] Tensor tensor() const {
    const DType dtype = dtype_from_name(entry_.dtype);
    if (entry_.shape.size() > kMostAxes || byte_size(dtype, elements()) != entry_.bytes)
      refuse(fmt::format("claims {} {}, but {} bytes are stored", fq::name(dtype), to_string(entry_.shape),
                         entry_.bytes));
    Tensor tensor = Tensor::empty(entry_.shape, dtype);
    read(tensor.mutable_raw());
    return tensor;
  }

  [[noreturn]] void refuse(const std::string& why) const { refuse_part(file_, entry_.name, why); }

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
      if (state.contains(entry.name)) part.refuse("occurs twice");
      return state.set(entry.name, part.tensor());
    }
    auto attributes = part.attributes();
    for (auto& attribute : attributes.items())
      state.set_attribute(attribute.key(), std::move(attribute.value()));
  } catch (const ArgumentError& error) {
    part.refuse(fmt::format("is invalid: {}", error.what()));
  } catch (const nlohmann::json::exception&) {
    part.refuse("holds JSON that cannot be read");
  }
}

/// Returns the parts that have bytes, in the order of their offsets. Rejects overlapping parts, so that a
/// small file cannot claim many large parts.
std::vector<const ListedDataset*> parts_apart(const FileReader& file,
                                              const std::vector<ListedDataset>& listing) {
  std::vector<const ListedDataset*> parts;
  for (const auto& entry : listing)
    if (entry.bytes > 0) parts.push_back(&entry);
  std::ranges::sort(parts, {}, &ListedDataset::offset);
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (parts[i]->offset - parts[i - 1]->offset < parts[i - 1]->bytes)
      refuse_part(file, parts[i]->name, "overlaps another part");
  return parts;
}

/// Returns the checksum of the body. The checksums of the parts and of the listing are verified already;
/// bytes between the parts are read here.
std::uint32_t body_checksum(const FileReader& file, const StateHeader& header,
                            const std::vector<const ListedDataset*>& parts) {
  std::uint32_t crc = 0;
  std::int64_t at = kHeaderBytes;
  const auto take = [&](std::int64_t offset, std::int64_t bytes, std::uint32_t own) {
    crc = crc32c_joined(crc, file.checksum(at, offset - at), static_cast<std::uint64_t>(offset - at));
    crc = crc32c_joined(crc, own, static_cast<std::uint64_t>(bytes));
    at = offset + bytes;
  };
  for (const auto* part : parts) take(part->offset, part->bytes, part->crc);
  take(file.size() - header.listing_bytes, header.listing_bytes, header.listing_crc);
  return crc;
}

/// Reads the state of a file by its listing, without HDF5. Each byte is read once, and the checksums of each
/// part and of the body cover it. Checksums do not protect from forged files: so every size that the file
/// claims is compared with the size of the file. Throws FileError, ArgumentError for invalid names, and
/// json::exception for an invalid listing. A damaged body (`verify_body`) can cause any of these errors.
StateDict read_state(const FileReader& file, const StateHeader& header) {
  auto listing = read_listing(file, header);
  const bool has_dtypes =
      std::ranges::none_of(listing, [](const auto& entry) { return entry.dtype.empty(); });
  if (!has_dtypes) take_listed_types(file, listing);
  const auto parts = parts_apart(file, listing);
  StateDict state;
  for (const auto& entry : listing) put(state, file, entry);
  if (body_checksum(file, header, parts) != header.body_crc) verify_body(file, header);
  return state;
}

}  // namespace
}  // namespace fq::detail

namespace fq {
namespace {

void check_kind(const std::string& path, const std::string& found, std::string_view wanted) {
  if (wanted.empty() || wanted == found) return;
  throw FileError(path, "",
                  fmt::format("[load_state] {} is a file of {}, expected one of {}", path, found, wanted));
}

/// Reads the state. If reading fails in any way and the body is damaged, reports the damage instead.
StateDict whole_state(const detail::FileReader& file, const detail::StateHeader& header) {
  try {
    return detail::read_state(file, header);
  } catch (const std::exception&) {
    verify_body(file, header);
    throw;
  }
}

}  // namespace

StateDict load_state(const std::string& path, std::string_view kind) {
  const detail::FileReader file(path);
  const auto header = detail::read_header(file);
  check_kind(path, header.kind, kind);
  try {
    return whole_state(file, header);
  } catch (const nlohmann::json::exception&) {
    throw FileError(path, "", fmt::format("[load_state] {} is damaged: its listing is invalid", path));
  } catch (const ArgumentError& error) {
    throw FileError(path, "", fmt::format("[load_state] {} is invalid: {}", path, error.what()));
  }
}

StateFileInfo state_file_info(const std::string& path) {
  const detail::FileReader file(path);
  const auto header = detail::read_header(file);
  return {header.kind, header.version, file.size()};
}

}  // namespace fq
