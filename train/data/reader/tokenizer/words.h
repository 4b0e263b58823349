#pragma once

/// Texts cut into words by the patterns of language models.

#include <string_view>
#include <vector>

namespace fq::detail {

/// How a text is cut: contractions, runs of letters, of numbers and of others, and blanks.
struct WordPattern {
  std::string_view name;  ///< llama.cpp's: "gpt-2", "llama-bpe", "qwen2"
  int digits = 0;         ///< the most numbers together; 0 for all
  /// Whether any character but a line's end leads a run of letters, contractions are of either case, and ends
  /// of lines stay with what is before them; else a blank leads runs of all three kinds.
  bool lines = false;
};

/// GPT-2's (Radford et al. 2019).
[[nodiscard]] const WordPattern& gpt2_pattern();
/// That of a regular expression of tokenizer.json: GPT-2's, Llama 3's or Qwen 2's, as their files write it.
/// Throws ArgumentError for any other.
[[nodiscard]] const WordPattern& word_pattern(std::string_view regex);
/// The regular expression of a pattern by llama.cpp's name. Throws ArgumentError for any other name.
[[nodiscard]] std::string_view pattern_regex(std::string_view name);

/// All of `text`, UTF-8, in words.
[[nodiscard]] std::vector<std::string_view> words_of(std::string_view text, const WordPattern& pattern);

}  // namespace fq::detail
