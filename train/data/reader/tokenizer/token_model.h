#pragma once

/// The models of tokenizer.json: how a piece of text becomes tokens.

#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "fakequant/train/data/reader/tokenizer/token_table.h"

namespace fq::detail {

/// Tokens of pieces of text. It does not change; several threads may use it.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of a piece, UTF-8, to `ids`. Throws ArgumentError naming a character that has no token
  /// where the model has none for what it does not know.
  virtual void encode(std::string_view piece, std::vector<std::int32_t>& ids) const = 0;
};

/// "BPE": characters, joined pair by pair in the order of the merges (Sennrich et al., arXiv:1508.07909), as
/// the package tokenizers does. Tokens go into `table`, which outlives the model. Throws ArgumentError for a
/// merge of tokens that are not there, and for options that are not read.
[[nodiscard]] std::unique_ptr<TokenModel> read_bpe(const nlohmann::json& model, TokenTable& table);
/// "Unigram": the tokens whose scores, logarithms of probabilities, have the largest sum (Kudo,
/// arXiv:1804.10959). Throws likewise.
[[nodiscard]] std::unique_ptr<TokenModel> read_unigram(const nlohmann::json& model, TokenTable& table);

/// The known types: BPE and Unigram. Throws ArgumentError naming them.
[[nodiscard]] std::unique_ptr<TokenModel> read_token_model(const nlohmann::json& model, TokenTable& table);

}  // namespace fq::detail
