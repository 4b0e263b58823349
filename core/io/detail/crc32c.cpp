#include "fakequant/core/io/detail/crc32c.h"

#include <cstring>

namespace fq {
namespace {

// Castagnoli's polynomial (RFC 3720) with reversed bits: the lowest bit is the highest power.
constexpr std::uint32_t kPolynomial = 0x82f63b78u;

// Table k advances a byte past k more bytes, so eight independent look-ups process eight bytes.
struct Tables {
  std::uint32_t of[8][256];
};

consteval Tables make_tables() {
  Tables made{};
  auto& tables = made.of;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xffu];
  return made;
}

constexpr Tables kMade = make_tables();
constexpr auto& kTables = kMade.of;

/// Returns the product of two polynomials modulo the checksum's polynomial; bit 31 is x^0.
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t out = 0;
  for (int bit = 31; bit >= 0; --bit) {
    if ((a >> bit & 1u) != 0) out ^= b;
    b = (b >> 1) ^ ((b & 1u) != 0 ? kPolynomial : 0u);
  }
  return out;
}

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t previous) noexcept {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~previous;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    const std::uint32_t low =
        crc ^ (at[0] | at[1] << 8 | at[2] << 16 | static_cast<std::uint32_t>(at[3]) << 24);
    crc = kTables[7][low & 0xffu] ^ kTables[6][(low >> 8) & 0xffu] ^ kTables[5][(low >> 16) & 0xffu] ^
          kTables[4][low >> 24] ^ kTables[3][at[4]] ^ kTables[2][at[5]] ^ kTables[1][at[6]] ^
          kTables[0][at[7]];
  }
  for (; bytes > 0; --bytes, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ *at) & 0xffu];
  return ~crc;
}

std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept {
  // Appending n bytes multiplies the first checksum by x^(8 n), computed by repeated squaring (as zlib's
  // crc32_combine).
  std::uint32_t power = 1u << 23;  // x^8
  for (; second_bytes > 0; second_bytes >>= 1, power = product(power, power))
    if ((second_bytes & 1u) != 0) first = product(first, power);
  return first ^ second;
}

}  // namespace fq
