#include "fakequant/core/detail/text.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fq::detail {
namespace {

char small(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

/// Returns the number of edits, ignoring case. Swapping two neighbours is one edit.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto same = [&](std::size_t i, std::size_t j) { return small(a[i - 1]) == small(b[j - 1]); };
  // Three rows of the matrix of Damerau and Levenshtein (optimal string alignment): `before` is needed for
  // swaps.
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (same(i, j) ? 0 : 1)});
      if (i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j)) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> nearest(std::string_view name, std::vector<std::string> names, std::size_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t i = 0; i < names.size(); ++i) order.emplace_back(edit_distance(name, names[i]), i);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size()));
  std::ranges::partial_sort(order, end);
  std::vector<std::string> out;
  for (auto at = order.begin(); at != end; ++at) out.push_back(std::move(names[at->second]));
  return out;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  const auto best = nearest(name, names, 12);
  // A suggestion that differs in more than a third of the name is rarely right: lists the names instead.
  if (edit_distance(name, best[0]) <= std::max<std::size_t>(2, name.size() / 3))
    return fmt::format(": did you mean '{}'?", best[0]);
  return fmt::format(": use one of {}{}", fmt::join(best, ", "), names.size() > 12 ? ", .." : "");
}

std::string shortened(const std::string& text) {
  return text.size() <= 80 ? text : fmt::format("{}..", std::string_view(text).substr(0, 77));
}

std::string alternatives(const std::vector<std::string>& names) {
  if (names.size() < 2) return fmt::format("{}", fmt::join(names, ""));
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

namespace {

/// Returns the part of a pattern that matches one character: "k", "?" or "[kv]".
std::string_view pattern_part(std::string_view pattern) {
  // ']' as the first character of a set is part of it, as in fnmatch.
  const auto end = pattern.starts_with('[') ? pattern.find(']', 2) : std::string_view::npos;
  return pattern.substr(0, end == std::string_view::npos ? 1 : end + 1);
}

bool matches_character(std::string_view part, char c) {
  if (part.size() > 1) return part.substr(1, part.size() - 2).find(c) != std::string_view::npos;
  return part == "?" || (part != "*" && part == std::string_view(&c, 1));
}

}  // namespace

bool wildcard_match(std::string_view pattern, std::string_view text) {
  // Names may contain '[' or '?'. A rule for exactly this name must match it.
  if (pattern == text) return true;
  // Greedy with one point of return: after a mismatch the last '*' takes one more character. Earlier stars
  // need no retry, so the time is at most |pattern| * |text|.
  std::size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    const auto part = pattern_part(pattern.substr(std::min(p, pattern.size())));
    if (matches_character(part, text[t])) {
      p += part.size();
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  return std::ranges::all_of(pattern.substr(p), [](char c) { return c == '*'; });
}

std::string quantizer_label(std::string_view name) {
  return name.empty() ? "the quantizer" : fmt::format("'{}'", name);
}

std::string allowed_indices(std::int64_t count) {
  return count == 0 ? "there are none" : fmt::format("use 0 to {}", count - 1);
}

std::string join_path(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

namespace {

// Control characters could move the cursor of a terminal, and marks of text direction could reorder the
// visible text.
bool is_control(char32_t c) {
  const bool c0 = c < 0x20 && c != '\n' && c != '\t', c1 = c >= 0x7f && c < 0xa0;
  const bool direction = c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) ||
                         (c >= 0x2066 && c <= 0x2069);
  return c0 || c1 || direction || c == 0x2028 || c == 0x2029;
}

std::string written_out(const Utf8Character& c) {
  if (c.code == Utf8Character::none) return fmt::format("\\x{:02x}", static_cast<unsigned char>(c.bytes[0]));
  const auto code = static_cast<std::uint32_t>(c.code);
  return code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const auto ones = static_cast<std::size_t>(std::countl_one(lead));
  if (ones == 0) return {lead, text.substr(0, 1)};
  const Utf8Character none{Utf8Character::none, text.substr(0, 1)};
  if (ones == 1 || ones > 4 || text.size() < ones) return none;
  char32_t code = lead & (0x7fu >> ones);
  for (std::size_t i = 1; i < ones; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0u) != 0x80u) return none;
    code = code << 6 | (next & 0x3fu);
  }
  // RFC 3629: rejects longer encodings than necessary, surrogates, and codes beyond U+10FFFF.
  static constexpr char32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < least[ones] || code > 0x10ffff || surrogate) return none;
  return {code, text.substr(0, ones)};
}

std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Character c = first_character(text);
    out += c.code == Utf8Character::none ? std::string_view("\xef\xbf\xbd") : c.bytes;
    text.remove_prefix(c.bytes.size());
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Character c = first_character(text);
    if (c.code == Utf8Character::none || is_control(c.code))
      out += written_out(c);
    else
      out += c.bytes;
    text.remove_prefix(c.bytes.size());
  }
  return out;
}

std::string one_line(std::string_view text) {
  std::string out = printable(text);
  std::ranges::replace(out, '\n', '?');
  return out;
}

std::string one_line_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return out;
}

}  // namespace fq::detail
