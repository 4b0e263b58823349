#pragma once

/// The classes of characters that tokenizers split texts by.

namespace fq::detail {

/// General category L: \p{L}.
[[nodiscard]] bool is_letter(char32_t c);
/// General category N: \p{N}.
[[nodiscard]] bool is_number(char32_t c);
/// White_Space: \s.
[[nodiscard]] bool is_space(char32_t c);

}  // namespace fq::detail
