#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/tokenizer/json_fields.h"
#include "fakequant/train/data/reader/tokenizer/token_model.h"

namespace fq::detail {
namespace {

using nlohmann::json;

constexpr const char* kModel = "the model BPE";

struct Merge {
  std::int32_t rank, joined;
};

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
}

/// A part of a piece, in a list with its neighbours.
struct Part {
  std::int32_t id;
  std::ptrdiff_t before, after;
  bool gone = false;
};

struct Candidate {
  std::int32_t rank;
  std::ptrdiff_t at;
  std::int32_t joined;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : at > other.at;
  }
};

class Bpe final : public TokenModel {
 public:
  Bpe(const json& model, TokenTable& table) : table_(table) {
    refuse(model);
    whole_ = flag_of(model, "ignore_merges", false);
    fuse_ = flag_of(model, "fuse_unk", false);
    bytes_ = flag_of(model, "byte_fallback", false);
    const json& vocabulary = member(model, "vocab", kModel);
    FQ_CHECK(vocabulary.is_object(), "tokenizer", "\"vocab\" of {} is no object", kModel);
    for (const auto& [token, id] : vocabulary.items())
      table.add(token, id_of(id, "'" + printable(token) + "'"));
    if (model.contains("unk_token") && !model["unk_token"].is_null()) {
      const std::string name = text_of(model, "unk_token", kModel);
      unknown_ = table.find(name);
      FQ_CHECK(unknown_, "tokenizer", "\"unk_token\" is '{}', which is no token", printable(name));
    }
    add_merges(member(model, "merges", kModel));
  }

  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const override {
    if (whole_)
      if (const auto id = table_.find(piece)) return ids.push_back(*id);
    std::vector<Part> parts = characters(piece);
    join(parts);
    for (const Part& part : parts)
      if (!part.gone) ids.push_back(part.id);
  }

 private:
  static void refuse(const json& model) {
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
      if (!model.contains(name)) continue;
      const json& value = model[name];
      const bool off = value.is_null() || value == "" || (value.is_number() && value == 0);
      FQ_CHECK(off, "tokenizer", "{} has \"{}\", which is not read", kModel, name);
    }
  }

  void add_merges(const json& merges) {
    FQ_CHECK(merges.is_array(), "tokenizer", "\"merges\" of {} is no list", kModel);
    std::int32_t rank = 0;
    for (const json& merge : merges) {
      const auto pair = sides(merge, rank);
      const auto& left = pair.first;
      const auto& right = pair.second;
      const auto known = [&](const std::string& token) {
        const auto id = table_.find(token);
        FQ_CHECK(id, "tokenizer", "merge {} joins '{}' and '{}': '{}' is no token of the vocabulary", rank,
                 printable(left), printable(right), printable(token));
        return *id;
      };
      const std::int32_t first = known(left), second = known(right), joined = known(left + right);
      merges_.insert_or_assign(pair_of(first, second), Merge{rank, joined});
      ++rank;
    }
  }

  static std::pair<std::string, std::string> sides(const json& merge, std::int32_t rank) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const std::size_t blank = text.find(' ');
    FQ_CHECK(blank != text.npos && text.find(' ', blank + 1) == text.npos, "tokenizer",
             "merge {} is no pair of tokens: give \"left right\" or [\"left\", \"right\"]", rank);
    return {text.substr(0, blank), text.substr(blank + 1)};
  }

  [[nodiscard]] std::vector<Part> characters(std::string_view piece) const {
    std::vector<Part> parts;
    const auto add = [&](std::int32_t id) {
      const auto at = std::ssize(parts);
      parts.push_back({id, at - 1, at + 1});
    };
    bool after_unknown = false;
    while (!piece.empty()) {
      const auto character = first_character(piece).bytes;
      piece.remove_prefix(character.size());
      const auto id = table_.find(character);
      const auto bytes = id || !bytes_ ? std::nullopt : table_.bytes_of(character);
      const bool unknown = !id && !bytes;
      if (id)
        add(*id);
      else if (bytes)
        std::ranges::for_each(*bytes, add);
      else if (!(after_unknown && fuse_))
        add(unknown_id(character));
      after_unknown = unknown;
    }
    if (!parts.empty()) parts.back().after = -1;
    return parts;
  }

  [[nodiscard]] std::int32_t unknown_id(std::string_view character) const {
    FQ_CHECK(unknown_, "tokenizer", "'{}' is none of the tokens, and there is none for what is unknown",
             printable(character));
    return *unknown_;
  }

  void join(std::vector<Part>& parts) const {
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
    const auto look = [&](std::ptrdiff_t at) {
      const Part& part = parts[std::size_t(at)];
      if (part.after < 0) return;
      const auto merge = merges_.find(pair_of(part.id, parts[std::size_t(part.after)].id));
      if (merge != merges_.end()) queue.push({merge->second.rank, at, merge->second.joined});
    };
    for (std::ptrdiff_t i = 0; i < std::ssize(parts); ++i) look(i);
    while (!queue.empty()) {
      const Candidate top = queue.top();
      queue.pop();
      Part& part = parts[std::size_t(top.at)];
      if (part.gone || part.after < 0) continue;
      Part& next = parts[std::size_t(part.after)];
      const auto merge = merges_.find(pair_of(part.id, next.id));
      if (merge == merges_.end() || merge->second.joined != top.joined) continue;
      part.id = top.joined;
      next.gone = true;
      part.after = next.after;
      if (part.after >= 0) parts[std::size_t(part.after)].before = top.at;
      if (part.before >= 0) look(part.before);
      look(top.at);
    }
  }

  const TokenTable& table_;
  bool whole_ = false, fuse_ = false, bytes_ = false;
  std::optional<std::int32_t> unknown_;
  std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace

std::unique_ptr<TokenModel> read_bpe(const json& model, TokenTable& table) {
  return std::make_unique<Bpe>(model, table);
}

std::unique_ptr<TokenModel> read_token_model(const json& model, TokenTable& table) {
  if (model.is_object() && !model.contains("type") && model.contains("merges")) return read_bpe(model, table);
  const std::string type = type_of(model, "model", {"BPE", "Unigram"});
  return type == "BPE" ? read_bpe(model, table) : read_unigram(model, table);
}

}  // namespace fq::detail
