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

/// Limits the steps of a tokenizer file: they may make 64 times the bytes of a text and 64 KiB. Real steps
/// make up to four times the bytes. A hostile file names many steps that each multiply the text.
class GrowthLimit {
 public:
  explicit GrowthLimit(std::size_t bytes) : most_(kFactor * bytes + kAny) {}
  /// Throws ArgumentError naming the step, such as "the normalizer Replace".
  void check(std::size_t bytes, std::string_view step) const;

 private:
  static constexpr std::size_t kFactor = 64, kAny = std::size_t{64} << 10;
  std::size_t most_;
};
/// A step of a Sequence, or a Sequence.
template <class Value>
using LimitedStep = std::function<Value(Value, const GrowthLimit&)>;

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
/// The same; throws ArgumentError naming `step` where the result is longer than `limit` allows.
[[nodiscard]] std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                                   const GrowthLimit& limit, std::string_view step);

}  // namespace fq::detail
