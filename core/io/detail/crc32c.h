#pragma once

/// CRC-32C, the Castagnoli checksum of iSCSI (RFC 3720, appendix B.4): reflected polynomial 0x82f63b78.

#include <cstddef>
#include <cstdint>

namespace fq {

/// Returns the checksum of `bytes` bytes. `previous` is the checksum of the preceding bytes, for a text in
/// parts: crc32c(ab) == crc32c(b, crc32c(a)).
[[nodiscard]] std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t previous = 0) noexcept;

/// Returns crc32c(ab) from crc32c(a) and crc32c(b), with b of `second_bytes` bytes: the first times x^(8
/// second_bytes), plus the second.
[[nodiscard]] std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second,
                                          std::uint64_t second_bytes) noexcept;

}  // namespace fq
