#pragma once

/// Text functions for messages: nearest valid names, wildcard patterns, paths and printable text.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// Returns ": did you mean 'conv1'?" for the nearest of `names`, or ": use one of a, b, c" (at most 12) for
/// a name without near ones.
[[nodiscard]] std::string did_you_mean(std::string_view name, const std::vector<std::string>& names);
/// Returns the first 77 bytes and ".." for a text of more than 80 bytes.
[[nodiscard]] std::string shortened(const std::string& text);
/// Returns "a, b or c".
[[nodiscard]] std::string alternatives(const std::vector<std::string>& names);
/// Returns the `count` names with the smallest edit distance.
[[nodiscard]] std::vector<std::string> nearest(std::string_view name, std::vector<std::string> names,
                                               std::size_t count);
/// Matches shell patterns: `*` is any run of characters, `?` one character, `[kv]` one of these.
[[nodiscard]] bool wildcard_match(std::string_view pattern, std::string_view text);
/// Returns "'conv1.weight_quantizer'", or "the quantizer" for an empty name.
[[nodiscard]] std::string quantizer_label(std::string_view name);
/// Returns "use 0 to 4" for a count of 5, or "there are none" for 0.
[[nodiscard]] std::string allowed_indices(std::int64_t count);
/// Returns "prefix.name", or the name alone if the prefix is empty.
[[nodiscard]] std::string join_path(const std::string& prefix, const std::string& name);

// Text from users and files, as UTF-8 and for a terminal.

/// A character of a text, and its bytes.
struct Utf8Character {
  static constexpr char32_t none = 0xffffffff;
  char32_t code = none;  ///< none: the byte does not begin a character
  std::string_view bytes;
};
/// Returns the first character of a non-empty text.
[[nodiscard]] Utf8Character first_character(std::string_view text);

/// Returns `text` with U+FFFD for each byte that is not valid UTF-8 (RFC 3629).
[[nodiscard]] std::string valid_utf8(std::string_view text);

/// Returns `text` for a terminal. Escapes control characters (except line ends and tabs), marks that change
/// the text direction, and invalid UTF-8, for example as "\x1b" or "\u202e".
[[nodiscard]] std::string printable(std::string_view text);
/// Returns `printable(text)` in one line, with "?" for each line end.
[[nodiscard]] std::string one_line(std::string_view text);
/// Returns a name for one-line tables and messages, with each ASCII control character escaped, as "\x0a".
[[nodiscard]] std::string one_line_name(std::string_view name);

}  // namespace fq::detail
