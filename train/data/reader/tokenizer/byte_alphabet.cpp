#include "fakequant/train/data/reader/tokenizer/byte_alphabet.h"

#include <array>
#include <map>

namespace fq::detail {
namespace {

bool is_printed(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

std::array<std::string, 256> make_alphabet() {
  std::array<std::string, 256> out;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int point = is_printed(byte) ? byte : next++;
    std::string& text = out[static_cast<std::size_t>(byte)];
    if (point < 0x80) {
      text = static_cast<char>(point);
    } else {
      text += static_cast<char>(0xc0 | (point >> 6));
      text += static_cast<char>(0x80 | (point & 0x3f));
    }
  }
  return out;
}

const std::array<std::string, 256>& alphabet() {
  static const std::array<std::string, 256> texts = make_alphabet();
  return texts;
}

}  // namespace

std::string to_byte_alphabet(std::string_view text) {
  std::string out;
  for (const char c : text) out += alphabet()[static_cast<unsigned char>(c)];
  return out;
}

std::string from_byte_alphabet(std::string_view text) {
  static const auto bytes = [] {
    std::map<std::string, char, std::less<>> out;
    for (std::size_t byte = 0; byte < 256; ++byte) out.emplace(alphabet()[byte], static_cast<char>(byte));
    return out;
  }();
  std::string out;
  while (!text.empty()) {
    const bool two = (static_cast<unsigned char>(text[0]) & 0xe0u) == 0xc0u && text.size() > 1;
    const auto character = text.substr(0, two ? 2 : 1);
    const auto found = bytes.find(character);
    out += found != bytes.end() ? std::string_view(&found->second, 1) : character;
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace fq::detail
