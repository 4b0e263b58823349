#pragma once

/// Texts as token ids. Of bytes and words 0 fills what is left of a sample, of pieces what their file says;
/// characters fill windows.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

class TokenizerFile;

/// What one token is. Pieces are what a tokenizer.json says.
enum class TokenUnit { bytes, words, characters, pieces };
/// Their names, in that order.
[[nodiscard]] const std::vector<std::string>& token_units();

/// Ids of a text: of bytes, each byte + 1; or of words or characters, by a vocabulary; or of pieces, by a
/// file.
class Tokenizer {
 public:
  /// Bytes: 257 ids.
  Tokenizer() = default;
  /// `vocabulary` is what ids stand for, from 0 on. Of words 0 is the filling and 1 every other word;
  /// characters are UTF-8, and there are no others.
  explicit Tokenizer(std::vector<std::string> vocabulary, TokenUnit unit = TokenUnit::words);

  /// Of pieces.
  explicit Tokenizer(std::shared_ptr<const TokenizerFile> file);

  /// The one that has these class names. Throws ArgumentError where they are none of tokens.
  [[nodiscard]] static Tokenizer of_class_names(const std::vector<std::string>& names);

  [[nodiscard]] TokenUnit unit() const noexcept { return unit_; }
  [[nodiscard]] const std::string& unit_name() const { return token_units()[std::size_t(unit_)]; }
  [[nodiscard]] const std::vector<std::string>& vocabulary() const noexcept { return vocabulary_; }
  /// Of pieces, else null.
  [[nodiscard]] const TokenizerFile* file() const noexcept { return file_.get(); }
  [[nodiscard]] std::int64_t size() const noexcept {
    return unit_ == TokenUnit::bytes ? 257 : std::int64_t(vocabulary_.size());
  }
  /// What each id is called where it is a class: the token, with blanks, control characters and bytes that
  /// are no UTF-8 written out, as "\x0a".
  [[nodiscard]] std::vector<std::string> class_names() const;

  /// Of all but characters: how many tokens the text has; the first `to.size()` of them, and then what fills.
  /// Throws ArgumentError for a file of pieces that has nothing to fill with.
  std::int64_t encode(std::string_view text, std::vector<std::int32_t>& to) const;
  /// All tokens of a text, which `path` names in messages. Throws FileError with the offset of the first byte
  /// that is no UTF-8, or that begins a character that is not in the vocabulary; of pieces as TokenizerFile.
  [[nodiscard]] std::vector<std::int32_t> encode_all(std::string_view text, const std::string& path) const;
  /// The text of ids, a blank between words. Ids that fill, and those that stand for nothing, are passed
  /// over.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const;

 private:
  TokenUnit unit_ = TokenUnit::bytes;
  std::shared_ptr<const TokenizerFile> file_;
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

/// The characters of a text, each once, in the order of their codes. Throws as `Tokenizer::encode_all`.
[[nodiscard]] std::vector<std::string> characters_of(std::string_view text, const std::string& path);

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
