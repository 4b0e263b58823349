#include "fakequant/train/data/reader/tokenizer/text_steps.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/tokenizer/byte_alphabet.h"
#include "fakequant/train/data/reader/tokenizer/json_fields.h"
#include "fakequant/train/data/reader/tokenizer/unicode_classes.h"
#include "fakequant/train/data/reader/tokenizer/words.h"

namespace fq::detail {
namespace {

using nlohmann::json;
using Pieces = std::vector<TextPiece>;
using NormalizerStep = LimitedStep<std::string>;
using PreTokenizerStep = LimitedStep<Pieces>;

constexpr const char* kNormalizer = "normalizer";
constexpr const char* kPreTokenizer = "pre_tokenizer";

std::string of_ascii(std::string text, const std::string& form) {
  const auto found = std::ranges::find_if(text, [](char c) { return static_cast<unsigned char>(c) >= 128; });
  FQ_CHECK(
      found == text.end(), "tokenizer",
      "the normalizer {} is here for ASCII text alone, and the text has '{}': normalise it before, and "
      "take the normalizer out of the file",
      form,
      printable(first_character(std::string_view(text).substr(std::size_t(found - text.begin()))).bytes));
  return text;
}

std::string stripped(std::string_view text, bool left, bool right) {
  while (left && !text.empty() && is_space(first_character(text).code))
    text.remove_prefix(first_character(text).bytes.size());
  while (right && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xc0u) == 0x80u) --last;
    if (!is_space(first_character(text.substr(last)).code)) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return text;
}

NormalizerStep replace_in_text(const json& step) {
  const json& pattern = member(step, "pattern", kNormalizer);
  FQ_CHECK(pattern.is_object() && pattern.contains("String"), "tokenizer",
           "the normalizer Replace has a pattern that is no String: regular expressions are not read");
  const std::string from = text_of(pattern, "String", kNormalizer),
                    to = text_of(step, "content", kNormalizer);
  FQ_CHECK(!from.empty(), "tokenizer", "the normalizer Replace has an empty pattern");
  return [from, to](const std::string& text, const GrowthLimit& limit) {
    return replaced(text, from, to, limit, "the normalizer Replace");
  };
}

std::size_t bytes_of(const std::string& text) { return text.size(); }
std::size_t bytes_of(const Pieces& pieces) {
  std::size_t sum = 0;
  for (const auto& piece : pieces) sum += piece.text.size();
  return sum;
}

/// A step whose result has at most a few times the bytes, so that checking the result is enough.
template <class Value, class Step>
LimitedStep<Value> limited(Step step, std::string name) {
  return [step = std::move(step), name = std::move(name)](Value value, const GrowthLimit& limit) {
    value = step(std::move(value));
    limit.check(bytes_of(value), name);
    return value;
  };
}

template <class Step, class Read>
std::vector<Step> steps_of(const json& sequence, const char* list, const char* where, Read read) {
  const json& all = member(sequence, list, where);
  FQ_CHECK(all.is_array(), "tokenizer", "{} of {} is no list", list, where);
  std::vector<Step> out;
  for (const auto& step : all) out.push_back(read(step));
  return out;
}

template <class Step>
auto one_after_another(std::vector<Step> steps) {
  return [steps = std::move(steps)](auto value, const GrowthLimit& limit) {
    for (const auto& step : steps) value = step(std::move(value), limit);
    return value;
  };
}

/// Each piece by itself, cut into views of it.
template <class Cut>
Pieces cut_each(const Pieces& pieces, Cut cut) {
  Pieces out;
  for (const auto& piece : pieces)
    for (const std::string_view part : cut(piece.text))
      out.push_back({std::string(part), piece.at_start && part.data() == piece.text.data()});
  return out;
}

PreTokenizer byte_level(const json& step) {
  const bool blank = flag_of(step, "add_prefix_space", true), words = flag_of(step, "use_regex", true);
  return [blank, words](Pieces pieces) {
    for (auto& piece : pieces)
      if (blank && !piece.text.starts_with(' ')) piece.text.insert(0, 1, ' ');
    if (words)
      pieces = cut_each(pieces, [](std::string_view text) { return words_of(text, gpt2_pattern()); });
    for (auto& piece : pieces) piece.text = to_byte_alphabet(piece.text);
    return pieces;
  };
}

/// By a regular expression that leaves nothing between its matches.
PreTokenizer split(const json& step) {
  const json& given = member(step, "pattern", kPreTokenizer);
  FQ_CHECK(given.is_object() && given.contains("Regex"), "tokenizer",
           "the pre-tokenizer Split has a pattern that is no Regex: it is not read");
  const std::string behavior = text_of(step, "behavior", kPreTokenizer);
  FQ_CHECK(behavior == "Isolated" && !flag_of(step, "invert", false), "tokenizer",
           "the pre-tokenizer Split has the behavior '{}'{}: Isolated alone is read", behavior,
           flag_of(step, "invert", false) ? ", inverted" : "");
  const WordPattern pattern = word_pattern(text_of(given, "Regex", kPreTokenizer));
  return [pattern](const Pieces& pieces) {
    return cut_each(pieces, [&](std::string_view text) { return words_of(text, pattern); });
  };
}

/// Pieces that begin with the mark.
std::vector<std::string_view> at_marks(std::string_view text, const std::string& mark) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t next = text.find(mark, text.starts_with(mark) ? mark.size() : 0);
    out.push_back(text.substr(0, next));
    text.remove_prefix(out.back().size());
  }
  return out;
}

PreTokenizer words_by_metaspace(const json& step) {
  const Metaspace how = metaspace_of(step);
  const bool split = flag_of(step, "split", true);
  return [how, split](Pieces pieces) {
    for (auto& piece : pieces) {
      piece.text = replaced(piece.text, " ", how.mark);
      const bool prefix = how.scheme == "always" || (how.scheme == "first" && piece.at_start);
      if (prefix && !piece.text.starts_with(how.mark)) piece.text.insert(0, how.mark);
    }
    if (!split) return pieces;
    return cut_each(pieces, [&](std::string_view text) { return at_marks(text, how.mark); });
  };
}

std::vector<std::string_view> without_blanks(std::string_view text) {
  std::vector<std::string_view> out;
  std::size_t begin = 0, at = 0;
  const auto take = [&] {
    if (at > begin) out.push_back(text.substr(begin, at - begin));
  };
  while (at < text.size()) {
    const Utf8Character c = first_character(text.substr(at));
    if (is_space(c.code)) take(), begin = at + c.bytes.size();
    at += c.bytes.size();
  }
  take();
  return out;
}

NormalizerStep normalizer_step(const json& step) {
  const std::string type =
      type_of(step, kNormalizer,
              {"Sequence", "Prepend", "Replace", "Strip", "Lowercase", "NFC", "NFD", "NFKC", "NFKD"});
  if (type == "Sequence")
    return one_after_another(steps_of<NormalizerStep>(step, "normalizers", kNormalizer, normalizer_step));
  if (type == "Replace") return replace_in_text(step);
  const auto named = [&](auto change) {
    return limited<std::string>(std::move(change), "the normalizer " + type);
  };
  if (type == "Lowercase")
    return named([](std::string text) { return lower(of_ascii(std::move(text), "Lowercase")); });
  if (type == "Strip")
    return named([left = flag_of(step, "strip_left", true), right = flag_of(step, "strip_right", true)](
                     const std::string& text) { return stripped(text, left, right); });
  if (type == "Prepend")
    return named([mark = text_of(step, "prepend", kNormalizer)](std::string text) {
      return text.empty() ? text : mark + text;
    });
  return named([type](std::string text) { return of_ascii(std::move(text), type); });
}

PreTokenizerStep pre_tokenizer_step(const json& step) {
  const std::string type =
      type_of(step, kPreTokenizer, {"Sequence", "ByteLevel", "Metaspace", "Split", "WhitespaceSplit"});
  if (type == "Sequence")
    return one_after_another(
        steps_of<PreTokenizerStep>(step, "pretokenizers", kPreTokenizer, pre_tokenizer_step));
  const auto named = [&](PreTokenizer change) {
    return limited<Pieces>(std::move(change), "the pre-tokenizer " + type);
  };
  if (type == "ByteLevel") return named(byte_level(step));
  if (type == "Split") return named(split(step));
  if (type == "Metaspace") return named(words_by_metaspace(step));
  return named([](const Pieces& pieces) { return cut_each(pieces, without_blanks); });
}

}  // namespace

void GrowthLimit::check(std::size_t bytes, std::string_view step) const {
  FQ_CHECK(bytes <= most_, "tokenizer",
           "{} makes {} bytes of a text, at most {} are allowed (64 times its own and 64 KiB): use the "
           "tokenizer.json that the network was trained with",
           step, bytes, most_);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     const GrowthLimit& limit, std::string_view step) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += from.size()) ++count;
  limit.check(text.size() + count * to.size() - count * from.size(), step);
  return replaced(text, from, to);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (std::size_t at = 0; (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size()))
    out.append(text.substr(0, at)).append(to);
  return out.append(text);
}

Normalizer read_normalizer(const json& description) {
  if (description.is_null()) return [](std::string text) { return text; };
  return [step = normalizer_step(description)](std::string text) {
    const GrowthLimit limit(text.size());
    return step(std::move(text), limit);
  };
}

PreTokenizer read_pre_tokenizer(const json& description) {
  if (description.is_null()) return [](Pieces pieces) { return pieces; };
  return [step = pre_tokenizer_step(description)](Pieces pieces) {
    const GrowthLimit limit(bytes_of(pieces));
    return step(std::move(pieces), limit);
  };
}

}  // namespace fq::detail
