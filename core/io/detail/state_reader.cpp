#include "fakequant/core/io/detail/state_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/json_text.h"
#include "fakequant/core/io/detail/tree/listed_types.h"

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

/// In the order of their bytes, those that have any. A small file cannot stand for many large parts.
std::vector<const ListedDataset*> parts_apart(const FileReader& file,
                                              const std::vector<ListedDataset>& listing) {
  std::vector<const ListedDataset*> parts;
  for (const auto& entry : listing)
    if (entry.bytes > 0) parts.push_back(&entry);
  std::ranges::sort(parts, {}, &ListedDataset::offset);
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (parts[i]->offset - parts[i - 1]->offset < parts[i - 1]->bytes)
      refuse_part(file, parts[i]->name, "lies over another part");
  return parts;
}

/// The checksum of the body, of parts and a listing whose own ones hold, and of what lies between them.
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

}  // namespace

StateDict read_state(const FileReader& file, const StateHeader& header) {
  auto listing = read_listing(file, header);
  const bool told = std::ranges::none_of(listing, [](const auto& entry) { return entry.dtype.empty(); });
  if (!told) take_listed_types(file, listing);
  const auto parts = parts_apart(file, listing);
  StateDict state;
  for (const auto& entry : listing) put(state, file, entry);
  if (body_checksum(file, header, parts) != header.body_crc) verify_body(file, header);
  return state;
}

}  // namespace fq::detail
