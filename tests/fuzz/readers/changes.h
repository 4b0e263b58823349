#pragma once

/// Files changed at random, the same for the same seed.

#include <cstdint>
#include <string>
#include <vector>

namespace fq::fuzz {

/// One of `seeds` with one to four changes: bits, bytes, digits and numbers replaced, pieces doubled, left
/// out, moved from another seed, and the end cut off.
[[nodiscard]] std::string mutated(const std::vector<std::string>& seeds, std::uint64_t seed);

/// JSON with one to three values, keys or elements changed, left out, added or copied to another place; a
/// text that is none as it is.
[[nodiscard]] std::string change_json(const std::string& text, std::uint64_t seed);
/// The same of the header.
[[nodiscard]] std::string change_safetensors(const std::string& bytes, std::uint64_t seed);
/// The same of our state files' attributes and listing; a tensor's bytes as above. Parts behind move.
[[nodiscard]] std::string change_state(const std::string& bytes, std::uint64_t seed);

}  // namespace fq::fuzz
