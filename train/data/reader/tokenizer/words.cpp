#include "fakequant/train/data/reader/tokenizer/words.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/tokenizer/unicode_classes.h"

namespace fq::detail {
namespace {

using Class = bool (*)(char32_t);

struct Known {
  std::string_view regex;
  WordPattern pattern;
};

constexpr Known kKnown[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {"gpt-2"}},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", {"gpt-2"}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {"llama-bpe", 3, true}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {"qwen2", 1, true}},
};

bool is_other(char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); }
bool is_line_end(char32_t c) { return c == '\r' || c == '\n'; }

/// Bytes of the characters of a class at the begin of a text, at most so many (0: all).
std::size_t run(std::string_view text, Class is, int most = 0) {
  std::size_t length = 0;
  for (int count = 0; length < text.size() && (most == 0 || count < most); ++count) {
    const Utf8Character c = first_character(text.substr(length));
    if (!is(c.code)) break;
    length += c.bytes.size();
  }
  return length;
}

/// In any case the long s, which folds to s, is one too.
std::size_t contraction(std::string_view text, bool any_case) {
  if (!text.starts_with('\'')) return 0;
  if (any_case && text.starts_with("'\u017f")) return 3;
  std::string head(text.substr(1, 2));
  if (any_case)
    std::ranges::transform(head, head.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"})
    if (head.starts_with(ending)) return 1 + ending.size();
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

/// Blanks up to the last end of a line among them; 0 where there is none.
std::size_t lines(std::string_view text) {
  const auto last = text.substr(0, run(text, is_space)).find_last_of("\r\n");
  return last == std::string_view::npos ? 0 : last + 1;
}

std::size_t word(std::string_view text, const WordPattern& pattern) {
  if (const std::size_t length = contraction(text, pattern.lines); length > 0) return length;
  const std::size_t blank = text[0] == ' ' ? 1 : 0;
  if (pattern.lines) {
    const Utf8Character first = first_character(text);
    const bool leads = !is_line_end(first.code) && !is_letter(first.code) && !is_number(first.code);
    const std::size_t before = leads ? first.bytes.size() : 0;
    if (const std::size_t length = run(text.substr(before), is_letter); length > 0) return before + length;
    if (const std::size_t length = run(text, is_number, pattern.digits); length > 0) return length;
    if (const std::size_t length = run(text.substr(blank), is_other); length > 0)
      return blank + length + run(text.substr(blank + length), is_line_end);
    if (const std::size_t length = lines(text); length > 0) return length;
    return blanks(text);
  }
  for (const Class is : {is_letter, is_number, is_other})
    if (const std::size_t length = run(text.substr(blank), is); length > 0) return blank + length;
  return blanks(text);
}

}  // namespace

const WordPattern& gpt2_pattern() { return kKnown[0].pattern; }

const WordPattern& word_pattern(std::string_view regex) {
  const auto* found = std::ranges::find(kKnown, regex, &Known::regex);
  FQ_CHECK(found != std::end(kKnown), "tokenizer",
           "the pre-tokenizer Split has the regular expression {}, which is none of those of GPT-2, Llama 3 "
           "and Qwen 2: others are not read",
           printable(std::string(regex.substr(0, 200))));
  return found->pattern;
}

std::string_view pattern_regex(std::string_view name) {
  const auto* found = std::ranges::find(kKnown, name, [](const Known& known) { return known.pattern.name; });
  FQ_CHECK(found != std::end(kKnown), "tokenizer",
           "the words of '{}' are not read: those of gpt-2, llama-bpe and qwen2 are",
           printable(std::string(name.substr(0, 100))));
  return found->regex;
}

std::vector<std::string_view> words_of(std::string_view text, const WordPattern& pattern) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    out.push_back(text.substr(0, word(text, pattern)));
    text.remove_prefix(out.back().size());
  }
  return out;
}

}  // namespace fq::detail
