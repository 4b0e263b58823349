#include "fakequant/train/data/reader/tokenizer/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/tokenizer/json_fields.h"
#include "fakequant/train/data/reader/tokenizer/unicode_classes.h"

namespace fq::detail {
namespace {

constexpr const char* kWhere = "an added token";

std::size_t blanks_behind(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size()) {
    const Utf8Character c = first_character(text.substr(length));
    if (!is_space(c.code)) break;
    length += c.bytes.size();
  }
  return length;
}

std::size_t blanks_before(std::string_view text) {
  std::size_t length = text.size();
  while (length > 0) {
    std::size_t last = length - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xc0u) == 0x80u) --last;
    if (!is_space(first_character(text.substr(last)).code)) break;
    length = last;
  }
  return text.size() - length;
}

}  // namespace

AddedTokens::AddedTokens(const nlohmann::json& list, TokenTable& table, const Normalizer& normalizer) {
  FQ_CHECK(list.is_array() || list.is_null(), "tokenizer", "\"added_tokens\" is no list");
  for (const auto& token : list) {
    const std::string text = text_of(token, "content", kWhere);
    const std::int32_t id = id_of(member(token, "id", kWhere), "'" + printable(text) + "'");
    FQ_CHECK(!text.empty(), "tokenizer", "the added token {} has an empty \"content\"", id);
    FQ_CHECK(!flag_of(token, "single_word", false), "tokenizer",
             "the added token '{}' is a \"single_word\", which is not read", printable(text));
    table.add(text, id);
    const bool normalised = flag_of(token, "normalized", false);
    tokens_.push_back({normalised ? normalizer(text) : text, id, flag_of(token, "lstrip", false),
                       flag_of(token, "rstrip", false), normalised});
    if (tokens_.back().text.empty()) tokens_.pop_back();
  }
  std::ranges::stable_sort(tokens_, std::greater<>(), [](const Added& a) { return a.text.size(); });
}

const AddedTokens::Added* AddedTokens::at(std::string_view text, bool normalised) const {
  const auto found = std::ranges::find_if(tokens_, [&](const Added& token) {
    return token.normalised == normalised && text.starts_with(token.text);
  });
  return found == tokens_.end() ? nullptr : &*found;
}

std::vector<Section> AddedTokens::cut(std::string_view text, bool normalised) const {
  const bool any = std::ranges::any_of(tokens_, [&](const Added& t) { return t.normalised == normalised; });
  std::vector<Section> out;
  std::size_t begin = 0;
  for (std::size_t i = 0; any && i < text.size();) {
    const Added* token = at(text.substr(i), normalised);
    if (token == nullptr) {
      ++i;
      continue;
    }
    std::size_t from = i, to = i + token->text.size();
    if (token->left) from -= blanks_before(text.substr(begin, i - begin));
    if (token->right) to += blanks_behind(text.substr(to));
    if (from > begin) out.push_back({text.substr(begin, from - begin), -1});
    out.push_back({text.substr(from, to - from), token->id});
    begin = i = to;
  }
  if (begin < text.size()) out.push_back({text.substr(begin), -1});
  return out;
}

}  // namespace fq::detail
