#pragma once

/// Tokens of a tokenizer.json, the file of the package tokenizers (Hugging Face), and how they become text.
/// Only the parts that decoding needs are read. The module fakequant.data of Python encodes texts.

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// Tokens by their ids, and the decoder of their file. It does not change.
class TokenTable {
 public:
  /// Reads the text of a tokenizer.json; `file` names it in messages. Throws FileError for other texts, for
  /// models and decoders that are not supported, and for a vocabulary with holes.
  [[nodiscard]] static std::shared_ptr<const TokenTable> parse(const std::string& text,
                                                               const std::string& file);
  /// Reads a file of at most 64 MiB. Throws as `parse`.
  [[nodiscard]] static std::shared_ptr<const TokenTable> load(const std::string& file);

  /// Returns the file's JSON in one line.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// Returns the tokens as the file writes them, from id 0 on.
  [[nodiscard]] const std::vector<std::string>& tokens() const noexcept { return tokens_; }
  /// Returns the merges "left right" of byte-level BPE; none for other tokenizers.
  [[nodiscard]] const std::vector<std::string>& byte_merges() const noexcept { return byte_merges_; }

  /// Returns the text of ids. Ids without a token are skipped. Bytes that are not UTF-8 are kept.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const;
  /// Returns how many characters a token adds to a text: 1 for the token that begins a character of several
  /// tokens, 0 for the rest of them.
  [[nodiscard]] std::int64_t characters(std::int32_t id) const;

  using Tokens = std::vector<std::string>;
  /// Changes the tokens of a text, and throws ArgumentError for more than `most` bytes.
  using DecoderStep = std::function<void(Tokens& tokens, std::size_t most)>;

 private:
  TokenTable(const nlohmann::json& file, std::string text);

  std::string text_;
  Tokens tokens_, byte_merges_;
  DecoderStep decoder_;
};

/// Returns each byte of a text as a character of GPT-2's alphabet: printable characters of Latin-1 are
/// unchanged, other bytes become characters from U+0100 on (Radford et al. 2019).
[[nodiscard]] std::string encode_byte_alphabet(std::string_view text);
/// Returns the bytes again. Characters that are not in the alphabet are kept.
[[nodiscard]] std::string decode_byte_alphabet(std::string_view text);

}  // namespace fq::detail
