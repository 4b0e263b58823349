#pragma once

/// The random generator of random.h, for host and device.

#include <array>
#include <cstdint>

#include "fakequant/core/numerics/number_formats.h"

namespace fq::detail {

/// Philox4x32-10.
FQ_HD std::array<std::uint32_t, 4> philox_words(std::array<std::uint32_t, 4> c,
                                                std::array<std::uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = std::uint64_t{0xD2511F53u} * c[0], q = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(q >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(q),
         static_cast<std::uint32_t>(p >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p)};
    k = {k[0] + 0x9E3779B9u, k[1] + 0xBB67AE85u};
  }
  return c;
}

}  // namespace fq::detail
