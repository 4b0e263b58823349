#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <vector>

#include "changes.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/state_header.h"
#include "reader.h"

namespace fq::fuzz {
namespace {

using Json = nlohmann::json;

constexpr auto kHeader = std::size_t(detail::kHeaderBytes);
constexpr std::size_t kBodySum = 12, kBodyBytes = 16, kListingBytes = 24, kListingSum = 32,
                      kHeaderSum = kHeader - 4;  // docs/formats.md
constexpr std::size_t kLongestListing = 1 << 16;

template <class T>
T load_number(const std::string& bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void put_number(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

std::size_t listing_bytes(const std::string& bytes) {
  return std::size_t(
      std::min<std::uint64_t>(load_number<std::uint64_t>(bytes, kListingBytes), bytes.size() - kHeader));
}

/// The listing of a state file; null if there is none.
Json parse_listing(const std::string& bytes) {
  if (bytes.size() < kHeader || listing_bytes(bytes) > kLongestListing) return {};
  const auto no_deep_one = [](int depth, Json::parse_event_t, const Json&) { return depth < 8; };
  Json listing =
      Json::parse(bytes.end() - std::ptrdiff_t(listing_bytes(bytes)), bytes.end(), no_deep_one, false);
  return listing.is_array() ? listing : Json();
}

void put_listing(std::string& bytes, const std::string& text) {
  bytes.resize(bytes.size() - listing_bytes(bytes));
  bytes += text;
  put_number(bytes, kListingBytes, std::uint64_t(text.size()));
}

std::string format_listing(const Json& listing) {
  return listing.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// A size in an entry of the listing, if it is there and no larger than `most`.
std::optional<std::size_t> read_size(const Json& entry, const char* key, std::size_t most) {
  if (!entry.is_object() || !entry.contains(key) || !entry[key].is_number_unsigned()) return std::nullopt;
  const auto size = entry[key].get<std::uint64_t>();
  return size <= most ? std::optional(std::size_t(size)) : std::nullopt;
}

/// Position of a part.
struct Part {
  Json* entry;
  std::size_t offset, bytes;
};

std::vector<Part> list_parts(Json& listing, const std::string& bytes) {
  std::vector<Part> parts;
  for (auto& entry : listing) {
    const auto offset = read_size(entry, "offset", bytes.size());
    const auto count = read_size(entry, "bytes", bytes.size() - offset.value_or(0));
    if (offset && count && *offset >= kHeader) parts.push_back({&entry, *offset, *count});
  }
  return parts;
}

/// Updates the checksums of parts. The listing is written only if one of them is wrong.
void seal_parts(std::string& bytes) {
  Json listing = parse_listing(bytes);
  bool changed = false;
  for (const auto& part : list_parts(listing, bytes)) {
    const Json sum = crc32c(bytes.data() + part.offset, part.bytes);
    changed |= part.entry->contains("crc32c") && (*part.entry)["crc32c"] != sum;
    (*part.entry)["crc32c"] = sum;
  }
  if (changed) put_listing(bytes, format_listing(listing));
}

/// Shorter JSON is padded with blanks, so that later parts do not move.
std::string changed_part(const std::string& text, bool json, std::uint64_t seed) {
  std::string changed = json ? change_json(text, seed) : mutated({text}, seed);
  if (changed.size() < text.size()) changed.resize(text.size(), ' ');
  return changed;
}

void replace_part(std::string& bytes, const std::vector<Part>& parts, const Part& part,
                  const std::string& by) {
  bytes.replace(part.offset, part.bytes, by);
  (*part.entry)["bytes"] = by.size();
  for (const auto& other : parts)
    if (other.offset > part.offset) (*other.entry)["offset"] = other.offset + by.size() - part.bytes;
}

}  // namespace

void seal_state(std::string& bytes) {
  if (bytes.size() < kHeader) return;
  seal_parts(bytes);
  const std::size_t body = bytes.size() - kHeader, listing = listing_bytes(bytes);
  put_number(bytes, kBodySum, crc32c(bytes.data() + kHeader, body));
  put_number(bytes, kBodyBytes, std::uint64_t(body));
  put_number(bytes, kListingBytes, std::uint64_t(listing));
  put_number(bytes, kListingSum, crc32c(bytes.data() + bytes.size() - listing, listing));
  put_number(bytes, kHeaderSum, crc32c(bytes.data(), kHeaderSum));
}

std::string change_state(const std::string& bytes, std::uint64_t seed) {
  Json listing = parse_listing(bytes);
  const auto parts = list_parts(listing, bytes);
  std::mt19937_64 engine(seed);
  std::string changed = bytes;
  if (parts.empty()) return changed;
  if (engine() % 4 == 0) {
    put_listing(changed, change_json(format_listing(listing), engine()));
    return changed;
  }
  const auto is_json = [](const Part& part) { return part.entry->value("name", Json()) == "attributes"; };
  auto part = parts.begin() + std::ptrdiff_t(engine() % parts.size());
  if (engine() % 4 != 0) part = std::ranges::find_if(parts, is_json);
  if (part == parts.end()) return changed;
  const std::string text = bytes.substr(part->offset, part->bytes);
  replace_part(changed, parts, *part, changed_part(text, is_json(*part), engine()));
  put_listing(changed, format_listing(listing));
  return changed;
}

}  // namespace fq::fuzz
