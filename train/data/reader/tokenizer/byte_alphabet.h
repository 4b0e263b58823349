#pragma once

/// GPT-2's alphabet: a printed character for each byte.

#include <string>
#include <string_view>

namespace fq::detail {

/// The bytes of a text as characters: printed ones of Latin-1 stand for themselves, the others follow from
/// U+0100 on (Radford et al. 2019).
[[nodiscard]] std::string to_byte_alphabet(std::string_view text);
/// The bytes again; characters that are none of the alphabet stay as they are.
[[nodiscard]] std::string from_byte_alphabet(std::string_view text);

}  // namespace fq::detail
