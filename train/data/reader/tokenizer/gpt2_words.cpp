#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/tokenizer/text_steps.h"
#include "fakequant/train/data/reader/tokenizer/unicode_classes.h"

namespace fq::detail {
namespace {

using Class = bool (*)(char32_t);

bool is_other(char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); }

/// Bytes of the characters of a class at the begin of a text.
std::size_t run(std::string_view text, Class is) {
  std::size_t length = 0;
  while (length < text.size()) {
    const Utf8Character c = first_character(text.substr(length));
    if (!is(c.code)) break;
    length += c.bytes.size();
  }
  return length;
}

std::size_t contraction(std::string_view text) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(ending)) return ending.size();
  return 0;
}

/// The last blank of several belongs to the word behind them.
std::size_t blanks(std::string_view text) {
  const std::size_t all = run(text, is_space);
  if (all == text.size()) return all;
  std::size_t last = all - 1;
  while ((static_cast<unsigned char>(text[last]) & 0xc0u) == 0x80u) --last;
  return last > 0 ? last : all;
}

std::size_t word(std::string_view text) {
  if (const std::size_t length = contraction(text); length > 0) return length;
  const std::size_t blank = text[0] == ' ' ? 1 : 0;
  for (const Class is : {is_letter, is_number, is_other})
    if (const std::size_t length = run(text.substr(blank), is); length > 0) return blank + length;
  return blanks(text);
}

}  // namespace

std::vector<std::string_view> gpt2_words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    out.push_back(text.substr(0, word(text)));
    text.remove_prefix(out.back().size());
  }
  return out;
}

}  // namespace fq::detail
