#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/tokenizer/json_fields.h"
#include "fakequant/train/data/reader/tokenizer/token_model.h"

namespace fq::detail {
namespace {

using nlohmann::json;

constexpr const char* kModel = "the model Unigram";
constexpr double kUnknownPenalty = 10;  // below the smallest score, as sentencepiece has it

/// Tokens by their bytes, one after another.
class Trie {
 public:
  void add(std::string_view token, std::int32_t id) {
    std::uint32_t node = 0;
    for (const char c : token) {
      const auto [next, added] = next_.try_emplace(key(node, c), count_);
      if (added) ++count_;
      node = next->second;
    }
    ids_.insert_or_assign(node, id);
  }
  /// Calls `use` with the length and the id of each token that the text begins with, short ones first.
  template <class Use>
  void prefixes(std::string_view text, Use use) const {
    std::uint32_t node = 0;
    for (std::size_t length = 1; length <= text.size(); ++length) {
      const auto next = next_.find(key(node, text[length - 1]));
      if (next == next_.end()) return;
      node = next->second;
      if (const auto id = ids_.find(node); id != ids_.end()) use(length, id->second);
    }
  }

 private:
  static std::uint64_t key(std::uint32_t node, char c) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(c);
  }
  std::unordered_map<std::uint64_t, std::uint32_t> next_;
  std::unordered_map<std::uint32_t, std::int32_t> ids_;
  std::uint32_t count_ = 1;
};

/// The best way to the end of a part of the piece.
struct Step {
  double score = -std::numeric_limits<double>::infinity();
  std::size_t begin = 0;
  std::int32_t id = -1;
};

class Unigram final : public TokenModel {
 public:
  Unigram(const json& model, TokenTable& table) : table_(table) {
    bytes_ = flag_of(model, "byte_fallback", false);
    const json& vocabulary = member(model, "vocab", kModel);
    FQ_CHECK(vocabulary.is_array(), "tokenizer", "\"vocab\" of {} is no list", kModel);
    double smallest = std::numeric_limits<double>::infinity();
    for (const json& entry : vocabulary) {
      const auto id = static_cast<std::int32_t>(scores_.size());
      FQ_CHECK(entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number(),
               "tokenizer", "token {} of \"vocab\" is no pair of a text and its score", id);
      const auto token = entry[0].get<std::string>();
      scores_.push_back(entry[1].get<double>());
      FQ_CHECK(std::isfinite(scores_.back()), "tokenizer", "the score of '{}' is no number",
               printable(token));
      smallest = std::min(smallest, scores_.back());
      table.add(token, id);
      if (!token.empty()) trie_.add(token, id);
    }
    unknown_score_ = smallest - kUnknownPenalty;
    if (!model.contains("unk_id") || model["unk_id"].is_null()) return;
    unknown_ = id_of(model["unk_id"], "unk_id");
    FQ_CHECK(std::size_t(*unknown_) < scores_.size(), "tokenizer", "\"unk_id\" is {}, of {} tokens",
             *unknown_, scores_.size());
  }

  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override {
    const std::vector<Step> best = ways(piece);
    std::vector<std::pair<std::string_view, std::int32_t>> parts;  // from the end
    for (std::size_t end = piece.size(); end > 0; end = best[end].begin) {
      const std::size_t begin = best[end].begin;
      const bool joins = best[end].id == -1 && !parts.empty() && parts.back().second == -1;
      const std::size_t length = end - begin + (joins ? parts.back().first.size() : 0);
      if (joins) parts.pop_back();
      parts.emplace_back(piece.substr(begin, length), best[end].id);
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      part->second >= 0 ? ids.push_back(part->second) : add_unknown(part->first, ids);
  }

 private:
  [[nodiscard]] std::vector<Step> ways(std::string_view piece) const {
    std::vector<Step> best(piece.size() + 1);
    best[0].score = 0;
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t character = first_character(piece.substr(at)).bytes.size();
      const double before = best[at].score;
      bool single = false;
      const auto offer = [&](std::size_t length, std::int32_t id, double score) {
        Step& step = best[at + length];
        if (before + score > step.score) step = {before + score, at, id};
      };
      trie_.prefixes(piece.substr(at), [&](std::size_t length, std::int32_t id) {
        single = single || length == character;
        offer(length, id == unknown_ ? -1 : id, scores_[std::size_t(id)]);
      });
      if (!single) offer(character, -1, unknown_score_);
      at += character;
    }
    return best;
  }

  void add_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
    const auto bytes = bytes_ ? table_.bytes_of(text) : std::nullopt;
    if (bytes) {
      ids.insert(ids.end(), bytes->begin(), bytes->end());
      return;
    }
    FQ_CHECK(unknown_, "tokenizer", "'{}' is none of the tokens, and there is none for what is unknown",
             printable(text));
    ids.push_back(*unknown_);
  }

  const TokenTable& table_;
  bool bytes_ = false;
  Trie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::optional<std::int32_t> unknown_;
};

}  // namespace

std::unique_ptr<TokenModel> read_unigram(const json& model, TokenTable& table) {
  return std::make_unique<Unigram>(model, table);
}

}  // namespace fq::detail
