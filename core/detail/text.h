#pragma once

/// Help for messages: the nearest valid name, wildcard patterns, and paths.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// ": did you mean 'conv1'?" for the nearest of `names`, or ": use one of a, b, c" where none is near; at
/// most 12.
[[nodiscard]] std::string did_you_mean(std::string_view name, const std::vector<std::string>& names);
/// The first 77 bytes and ".." of a text of more than 80 bytes.
[[nodiscard]] std::string shortened(const std::string& text);
/// "a, b or c".
[[nodiscard]] std::string alternatives(const std::vector<std::string>& names);
/// The `count` names at the smallest edit distance.
[[nodiscard]] std::vector<std::string> nearest(std::string_view name, std::vector<std::string> names,
                                               std::size_t count);
/// Shell-like: `*` any run of characters, `?` one, `[kv]` one of these.
[[nodiscard]] bool wildcard_match(std::string_view pattern, std::string_view text);
/// "'conv1.weight_quantizer'"; "the quantizer" where it has no name.
[[nodiscard]] std::string quantizer_label(std::string_view name);
/// "use 0 to 4" of five; "there are none" of nothing.
[[nodiscard]] std::string allowed_indices(std::int64_t count);
/// "prefix.name"; the name alone below an empty prefix.
[[nodiscard]] std::string join_path(const std::string& prefix, const std::string& name);

// Text of users and files, as UTF-8 and for a terminal.

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
/// Returns `printable(text)` in one line, with "?" for each line end.
[[nodiscard]] std::string one_line(std::string_view text);
/// A name for tables and messages of one line: each ASCII control character is written out, as "\x0a".
[[nodiscard]] std::string one_line_name(std::string_view name);

}  // namespace fq::detail
