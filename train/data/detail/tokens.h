#pragma once

/// Tokenizer: converts a data set's or network's ids to text, and a prompt to ids.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/train/data/detail/token_table.h"

namespace fq::detail {

/// Kinds of tokens. Pieces are the tokens of a tokenizer.json.
enum class TokenUnit { bytes, words, characters, pieces };

/// Ids of a text. Bytes: id 0 is padding, and a byte has the id byte + 1. Words: id 0 is padding, and id 1 is
/// any unknown word. Characters are UTF-8, and the vocabulary has all of them.
class Tokenizer {
 public:
  /// Bytes: 257 ids.
  Tokenizer() = default;
  /// Words or characters, by id.
  explicit Tokenizer(std::vector<std::string> vocabulary, TokenUnit unit = TokenUnit::words);
  /// Pieces.
  explicit Tokenizer(std::shared_ptr<const TokenTable> table);

  /// Returns the tokenizer with these class names. Throws ArgumentError if they are not names of tokens.
  [[nodiscard]] static Tokenizer from_names(const std::vector<std::string>& names);

  [[nodiscard]] TokenUnit unit() const noexcept { return unit_; }
  [[nodiscard]] std::string_view unit_name() const noexcept;
  /// Returns the table of pieces; null for other units.
  [[nodiscard]] const TokenTable* table() const noexcept { return table_.get(); }
  /// Returns the names of the tokens as classes: spaces, control characters and bytes that are not UTF-8 are
  /// escaped, as in "\x0a".
  [[nodiscard]] std::vector<std::string> class_names() const;

  /// Returns the ids of a text. Throws ArgumentError for bytes that are not UTF-8 and characters without an
  /// id, with their offset, and for pieces, which fakequant.data of Python encodes.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text) const;
  /// Returns the text of ids, with a space between words. Skips padding and ids without a token.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const;

 private:
  TokenUnit unit_ = TokenUnit::bytes;
  std::shared_ptr<const TokenTable> table_;
  std::vector<std::string> vocabulary_;
  std::map<std::string, std::int64_t, std::less<>> ids_;
};

/// Reads the tokenizer of a data set of text. Throws FileError for other data sets.
[[nodiscard]] Tokenizer read_tokenizer(const std::string& path);
/// Reads the tokenizer.json of a data set; null if the data set has no pieces.
[[nodiscard]] std::shared_ptr<const TokenTable> read_token_table(const std::string& path);

}  // namespace fq::detail
