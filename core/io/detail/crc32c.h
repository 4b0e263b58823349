#pragma once

/// CRC-32C, the Castagnoli checksum of iSCSI (RFC 3720, appendix B.4): reflected polynomial 0x82f63b78.

#include <cstddef>
#include <cstdint>

namespace fq {

/// The checksum of `bytes` bytes. `previous` is that of what came before, so that a long text can be summed
/// in parts: crc32c(ab) == crc32c(b, crc32c(a)).
[[nodiscard]] std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t previous = 0) noexcept;

}  // namespace fq
