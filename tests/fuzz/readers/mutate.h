#pragma once

/// Bytes changed at random, the same for the same seed.

#include <cstdint>
#include <string>
#include <vector>

namespace fq::fuzz {

/// One of `seeds` with one to four changes: bits, bytes, digits and numbers replaced, pieces doubled, left
/// out, moved from another seed, and the end cut off.
[[nodiscard]] std::string mutated(const std::vector<std::string>& seeds, std::uint64_t seed);

}  // namespace fq::fuzz
