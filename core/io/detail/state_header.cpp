#include "fakequant/core/io/detail/state_header.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/file_reader.h"
#include "fakequant/core/io/detail/json_text.h"

namespace fq::detail {
namespace {

// As in PNG: a byte above 127, both line endings and Ctrl-Z show damage by text-mode transfers.
constexpr std::array<unsigned char, 8> kMagic{0x89, 'F', 'Q', 'S', '\r', '\n', 0x1a, '\n'};
// Offsets in the header. Numbers are little-endian. The last four bytes are the checksum of the others.
constexpr std::size_t kVersionAt = 8, kCrcAt = 12, kLengthAt = 16, kListingAt = 24, kListingCrcAt = 32,
                      kKindAt = 36, kKindBytes = 32, kOwnCrcAt = kHeaderBytes - 4;

template <class T>
void put(unsigned char* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) at[i] = static_cast<unsigned char>(value >> (8 * i));
}

template <class T>
T get(const unsigned char* at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(at[i]) << (8 * i);
  return value;
}

[[noreturn]] void fail(const FileReader& file, const std::string& why, const std::string& dataset = {}) {
  throw FileError(file.path(), dataset, fmt::format("[load_state] {} {}", file.path(), why));
}

bool inside(const FileReader& file, const StateHeader& header, const ListedDataset& entry) {
  const std::int64_t end = file.size() - header.listing_bytes;
  // Without additions, which could overflow.
  return entry.offset >= kHeaderBytes && entry.offset <= end && entry.bytes <= end - entry.offset;
}

bool damaged(const FileReader& file, const StateHeader& header, const ListedDataset& entry) {
  return inside(file, header, entry) && file.checksum(entry.offset, entry.bytes) != entry.crc;
}

/// Returns a whole number from 0 to 2^56.
std::int64_t whole_number(const nlohmann::json& value) {
  const auto whole = whole_if<std::int64_t>(value, 0, kLargestListed);
  if (!whole) throw ArgumentError("its listing has a number that is not a size");
  return *whole;
}

ListedDataset listed_dataset(const nlohmann::json& item) {
  ListedDataset entry{item.at("name").get<std::string>(), whole_number(item.at("offset")),
                      whole_number(item.at("bytes")),
                      static_cast<std::uint32_t>(whole_number(item.at("crc32c")))};
  if (!item.contains("dtype")) return entry;
  entry.dtype = item.at("dtype").get<std::string>();
  for (const auto& size : item.at("shape")) entry.shape.push_back(whole_number(size));
  return entry;
}

/// Returns an empty listing if there is none or it is damaged.
std::vector<ListedDataset> whole_listing(const FileReader& file, const StateHeader& header) {
  // The listing is the end of the body.
  if (header.listing_bytes == 0) return {};
  std::string text(static_cast<std::size_t>(header.listing_bytes), '\0');
  file.read(kHeaderBytes + header.body_bytes - header.listing_bytes, text.data(), text.size());
  if (crc32c(text.data(), text.size()) != header.listing_crc) return {};
  std::vector<ListedDataset> listing;
  for (const auto& item : parse_json<nlohmann::json>(text)) listing.push_back(listed_dataset(item));
  return listing;
}

}  // namespace

std::array<unsigned char, kHeaderBytes> encode(const StateHeader& header) {
  FQ_CHECK(header.kind.size() < kKindBytes, "save_state", "the kind '{}' is too long: at most 31 bytes",
           header.kind);
  std::array<unsigned char, kHeaderBytes> block{};
  std::copy(kMagic.begin(), kMagic.end(), block.begin());
  put(&block[kVersionAt], header.version);
  put(&block[kCrcAt], header.body_crc);
  put(&block[kLengthAt], header.body_bytes);
  put(&block[kListingAt], header.listing_bytes);
  put(&block[kListingCrcAt], header.listing_crc);
  std::copy(header.kind.begin(), header.kind.end(), block.begin() + kKindAt);
  put(&block[kOwnCrcAt], crc32c(block.data(), kOwnCrcAt));
  return block;
}

std::string encode(const std::vector<ListedDataset>& listing) {
  auto list = nlohmann::json::array();
  for (const auto& entry : listing)
    list.push_back({{"name", entry.name},
                    {"offset", entry.offset},
                    {"bytes", entry.bytes},
                    {"crc32c", entry.crc},
                    {"dtype", entry.dtype},
                    {"shape", entry.shape}});
  return list.dump();
}

StateHeader read_header(const FileReader& file) {
  std::array<unsigned char, kHeaderBytes> block{};
  file.read(0, block.data(), static_cast<std::size_t>(std::min(file.size(), kHeaderBytes)));
  if (!std::equal(kMagic.begin(), kMagic.end(), block.begin())) {
    const std::string kind = file_kind(file.path());
    fail(file, fmt::format("is not a file of fakequant{}, or its first bytes are damaged",
                           kind.empty() ? "" : " but " + kind));
  }
  if (file.size() < kHeaderBytes) fail(file, "is truncated: it ends within its header");
  if (get<std::uint32_t>(&block[kOwnCrcAt]) != crc32c(block.data(), kOwnCrcAt))
    fail(file, "is damaged: its header");
  StateHeader header;
  header.version = get<std::uint32_t>(&block[kVersionAt]);
  // After the checksum: a damaged version must not send the user to a newer program.
  if (header.version > kFormatVersion)
    fail(file, fmt::format("has format version {}, this program reads up to {}: use a newer fakequant",
                           header.version, kFormatVersion));
  header.body_crc = get<std::uint32_t>(&block[kCrcAt]);
  header.body_bytes = get<std::int64_t>(&block[kLengthAt]);
  header.listing_bytes = get<std::int64_t>(&block[kListingAt]);
  header.listing_crc = get<std::uint32_t>(&block[kListingCrcAt]);
  const auto* kind = reinterpret_cast<const char*>(&block[kKindAt]);
  header.kind.assign(kind, ::strnlen(kind, kKindBytes));
  if (file.size() - kHeaderBytes != header.body_bytes)
    fail(file, fmt::format("is {}: it has {} bytes instead of {}",
                           file.size() - kHeaderBytes < header.body_bytes ? "truncated" : "damaged",
                           file.size(), kHeaderBytes + header.body_bytes));
  if (header.listing_bytes < 0 || header.listing_bytes > header.body_bytes)
    fail(file, "is damaged: its header");
  return header;
}

void refuse_part(const FileReader& file, const std::string& name, const std::string& why) {
  throw FileError(file.path(), name, fmt::format("[load_state] {}:{} {}", file.path(), name, why));
}

void verify_body(const FileReader& file, const StateHeader& header) {
  // Finds the damaged part for the message.
  if (file.checksum(kHeaderBytes, header.body_bytes) == header.body_crc) return;
  for (const auto& entry : whole_listing(file, header))
    if (damaged(file, header, entry))
      fail(file, fmt::format("is damaged: its dataset '{}'", entry.name), entry.name);
  fail(file, "is damaged: its structure");
}

std::vector<ListedDataset> read_listing(const FileReader& file, const StateHeader& header) {
  auto listing = whole_listing(file, header);
  if (listing.empty()) fail(file, "has no listing of its parts: it is damaged, or not written by fakequant");
  for (const auto& entry : listing)
    if (!inside(file, header, entry))
      fail(file, fmt::format("lists '{}' outside of the file", entry.name), entry.name);
  return listing;
}

}  // namespace fq::detail
