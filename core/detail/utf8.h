#pragma once

/// Text that others made, as UTF-8 and for a terminal.

#include <string>
#include <string_view>

namespace fq::detail {

/// A character of a text, and its bytes.
struct Utf8Character {
  static constexpr char32_t none = 0xffffffff;
  char32_t code = none;  ///< none: the byte begins no character
  std::string_view bytes;
};
/// The first of a text that is not empty.
[[nodiscard]] Utf8Character first_character(std::string_view text);

/// `text` with U+FFFD in place of each byte that is no UTF-8 (RFC 3629).
[[nodiscard]] std::string valid_utf8(std::string_view text);

/// `text` as a terminal may show it: control characters but line ends and tabs, marks that change the
/// direction of text, and bytes that are no UTF-8 are written out, as "\x1b" or "\u202e".
[[nodiscard]] std::string printable(std::string_view text);
/// The same in one line: "?" in place of each line end.
[[nodiscard]] std::string one_line(std::string_view text);
/// A name for tables and messages of one line: each ASCII control character is written out, as "\x0a".
[[nodiscard]] std::string one_line_name(std::string_view name);

}  // namespace fq::detail
