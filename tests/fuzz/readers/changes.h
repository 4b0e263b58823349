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
/// text that is not JSON is returned unchanged.
[[nodiscard]] std::string change_json(const std::string& text, std::uint64_t seed);
/// Changes the JSON header of a safetensors file.
[[nodiscard]] std::string change_safetensors(const std::string& bytes, std::uint64_t seed);
/// Changes attributes or the listing of a state file, or bytes of a tensor. Later parts move.
[[nodiscard]] std::string change_state(const std::string& bytes, std::uint64_t seed);

}  // namespace fq::fuzz
