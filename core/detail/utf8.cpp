#include "fakequant/core/detail/utf8.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

namespace fq::detail {
namespace {

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
