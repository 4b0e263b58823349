#include <cstring>

#include "fakequant/core/io/detail/crc32c.h"
#include "fakequant/core/io/detail/state_header.h"
#include "reader.h"

namespace fq::fuzz {
namespace {

template <class T>
T number_at(const std::string& bytes, std::size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void put_number(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

/// docs/formats.md has the places.
void seal_state(std::string& bytes) {
  constexpr auto header = std::size_t(detail::kHeaderBytes);
  if (bytes.size() < header) return;
  const std::size_t body = bytes.size() - header;
  const auto listing = std::min<std::uint64_t>(number_at<std::uint64_t>(bytes, 24), body);
  put_number(bytes, 12, crc32c(bytes.data() + header, body));
  put_number(bytes, 16, std::uint64_t(body));
  put_number(bytes, 24, listing);
  put_number(bytes, 32, crc32c(bytes.data() + bytes.size() - listing, listing));
  put_number(bytes, header - 4, crc32c(bytes.data(), header - 4));
}

}  // namespace fq::fuzz
