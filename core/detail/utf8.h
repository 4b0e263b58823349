#pragma once

/// Text that others made, as UTF-8 and for a terminal.

#include <string>
#include <string_view>

namespace fq::detail {

/// `text` with U+FFFD in place of each byte that is no UTF-8 (RFC 3629).
[[nodiscard]] std::string valid_utf8(std::string_view text);

/// `text` as a terminal may show it: control characters but line ends and tabs, marks that change the
/// direction of text, and bytes that are no UTF-8 are written out, as "\x1b" or "\u202e".
[[nodiscard]] std::string printable(std::string_view text);
/// A name for tables and messages of one line: "?" in place of each ASCII control character.
[[nodiscard]] std::string one_line_name(std::string name);

}  // namespace fq::detail
