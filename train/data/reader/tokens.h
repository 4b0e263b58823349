#pragma once

/// Texts as token ids. 0 fills what is left of a sample.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// Ids of a text: of bytes, each byte + 1; or of words, by a vocabulary.
class Tokenizer {
 public:
  /// Bytes: 257 ids.
  Tokenizer() = default;
  /// Words: `vocabulary` is what ids stand for, of which 0 is the filling and 1 every other word.
  explicit Tokenizer(std::vector<std::string> vocabulary);

  [[nodiscard]] bool of_words() const noexcept { return !vocabulary_.empty(); }
  [[nodiscard]] const std::vector<std::string>& vocabulary() const noexcept { return vocabulary_; }
  [[nodiscard]] std::int64_t size() const noexcept {
    return of_words() ? std::int64_t(vocabulary_.size()) : 257;
  }
  /// How many tokens the text has; the first `to.size()` of them, and then 0.
  std::int64_t encode(std::string_view text, std::vector<std::int32_t>& to) const;

 private:
  std::vector<std::string> vocabulary_;
  std::map<std::string, std::int32_t, std::less<>> ids_;
};

/// Calls `use` with each word: letters (all bytes from 128 on are), digits and apostrophes together, ASCII
/// letters made small; every other character but blanks is a word of its own.
template <class Use>
void for_each_word(std::string_view text, Use&& use) {
  const auto is_letter = [](unsigned char c) {
    return c >= 128 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c == '\'';
  };
  std::string word;
  for (std::size_t i = 0; i < text.size();) {
    word.clear();
    while (i < text.size() && is_letter(static_cast<unsigned char>(text[i]))) {
      const char c = text[i++];
      word += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    }
    if (word.empty()) {
      const auto c = static_cast<unsigned char>(text[i++]);
      if (c > ' ' && c < 127) word = char(c);
    }
    if (!word.empty()) use(std::as_const(word));
  }
}

/// Counts words for a vocabulary.
class WordCount {
 public:
  /// Throws ArgumentError past 2^24 different words.
  void add(std::string_view text);
  /// "<pad>", "<unk>", then the words that come most often, of as many the first in the alphabet: `most`
  /// together.
  [[nodiscard]] std::vector<std::string> vocabulary(std::int64_t most) const;

 private:
  std::map<std::string, std::int64_t, std::less<>> counts_;
};

}  // namespace fq::detail
