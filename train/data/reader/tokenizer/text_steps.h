#pragma once

/// What a tokenizer does to a text before it looks for tokens, as tokenizer.json describes it.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fq::detail {

/// A part of a text in which tokens are looked for by themselves.
struct TextPiece {
  std::string text;
  bool at_start = false;  ///< whether it begins where the whole text does
};

using Normalizer = std::function<std::string(std::string)>;
using PreTokenizer = std::function<std::vector<TextPiece>(std::vector<TextPiece>)>;

/// A "normalizer": Sequence, Prepend, Replace of a string, Strip, Lowercase of ASCII, and NFC, NFD, NFKC and
/// NFKD, which change no ASCII and refuse other text; null is none. Throws ArgumentError naming the known
/// ones.
[[nodiscard]] Normalizer read_normalizer(const nlohmann::json& json);
/// A "pre_tokenizer": Sequence, ByteLevel, Metaspace, Split by a pattern of words.h, WhitespaceSplit; null is
/// none. Throws likewise.
[[nodiscard]] PreTokenizer read_pre_tokenizer(const nlohmann::json& json);

/// `text` with `to` in place of each `from`, which is not empty.
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from, std::string_view to);

}  // namespace fq::detail
