#pragma once

/// tokenizer.json, the file of the package tokenizers (Hugging Face).

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fakequant/train/data/reader/tokenizer/added_tokens.h"
#include "fakequant/train/data/reader/tokenizer/decoding.h"
#include "fakequant/train/data/reader/tokenizer/token_model.h"

namespace fq::detail {

/// A tokenizer of such a file: the same ids as the package gives without special tokens around a text, for
/// byte-level BPE as GPT-2's, and for BPE and Unigram as sentencepiece makes them. It does not change.
class TokenizerFile {
 public:
  /// `file` names it in messages. Throws FileError for what is no JSON, for a member that is not there or not
  /// as it should be, for models, normalizers, .. that are not read, naming the known ones, and for a
  /// vocabulary with holes.
  [[nodiscard]] static std::shared_ptr<const TokenizerFile> parse(const std::string& text,
                                                                  const std::string& file);
  /// Of at most 64 MiB.
  [[nodiscard]] static std::shared_ptr<const TokenizerFile> load(const std::string& file);

  TokenizerFile(const TokenizerFile&) = delete;  // the model refers to the table
  TokenizerFile& operator=(const TokenizerFile&) = delete;

  /// The file's JSON in one line.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// As the file writes them, from id 0 on.
  [[nodiscard]] const std::vector<std::string>& tokens() const noexcept { return table_.tokens(); }
  /// Of byte-level BPE the pairs that become one token, "left right"; none of others.
  [[nodiscard]] const std::vector<std::string>& byte_merges() const noexcept { return byte_merges_; }
  /// What samples that are too short are filled with: "pad_id" of "padding", or a token of that use.
  [[nodiscard]] std::optional<std::int32_t> filling() const noexcept { return filling_; }

  /// Throws FileError, with `path` as the text's, for bytes that are no UTF-8 and for characters that have no
  /// token.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, const std::string& path) const;
  /// Ids that stand for nothing are passed over.
  [[nodiscard]] std::string decode(std::span<const std::int64_t> ids) const;
  /// Characters of the text that a token stands for: of one that is part of a character, 1 where it begins
  /// it.
  [[nodiscard]] std::int64_t characters(std::int32_t id) const;

 private:
  TokenizerFile(const nlohmann::json& json, std::string text, std::string file);
  void encode_section(std::string text, bool at_start, std::vector<std::int32_t>& ids) const;

  std::string text_, file_;
  TokenTable table_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<TokenModel> model_;
  AddedTokens added_;
  Decoder decoder_;
  std::optional<std::int32_t> filling_;
  std::vector<std::string> byte_merges_;
};

}  // namespace fq::detail
