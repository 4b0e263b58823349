#pragma once

/// Tokens that stand in a text as they are, such as "<|endoftext|>".

#include <nlohmann/json_fwd.hpp>

#include "fakequant/train/data/reader/tokenizer/text_steps.h"
#include "fakequant/train/data/reader/tokenizer/token_table.h"

namespace fq::detail {

/// A part of a text: an added token, or what is between two.
struct Section {
  std::string_view text;
  std::int32_t id = -1;  ///< -1: no added token
};

/// The "added_tokens" of tokenizer.json.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// Puts them into `table`. Those that are found in a normalised text are written as `normalizer` does.
  /// Throws ArgumentError for what is no token, and for "single_word".
  AddedTokens(const nlohmann::json& list, TokenTable& table, const Normalizer& normalizer);

  /// Cuts a text at the tokens that are found in it as it is given, or `normalised`: the first of them, of
  /// several at one place the longest.
  [[nodiscard]] std::vector<Section> cut(std::string_view text, bool normalised) const;

 private:
  struct Added {
    std::string text;
    std::int32_t id;
    bool left, right;  ///< whether blanks beside it belong to it
    bool normalised;
  };
  [[nodiscard]] const Added* at(std::string_view text, bool normalised) const;

  std::vector<Added> tokens_;  // long ones first
};

}  // namespace fq::detail
