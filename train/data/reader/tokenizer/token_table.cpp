#include "fakequant/train/data/reader/tokenizer/token_table.h"

#include <algorithm>
#include <charconv>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"

namespace fq::detail {
namespace {

constexpr std::int32_t kMostIds = 1 << 24;

}  // namespace

void TokenTable::add(const std::string& token, std::int32_t id) {
  FQ_CHECK(id >= 0 && id < kMostIds, "tokenizer", "the token '{}' has the id {}: 0 to {} are read",
           printable(token), id, kMostIds - 1);
  const auto at = static_cast<std::size_t>(id);
  const auto known = ids_.find(token);
  if (known != ids_.end() && known->second == id) return;
  FQ_CHECK(known == ids_.end(), "tokenizer", "the token '{}' has two ids, {} and {}", printable(token),
           known->second, id);
  if (at >= tokens_.size()) {
    tokens_.resize(at + 1);
    taken_.resize(at + 1);
  }
  FQ_CHECK(!taken_[at], "tokenizer", "the id {} stands for '{}' and for '{}'", id, printable(tokens_[at]),
           printable(token));
  tokens_[at] = token;
  taken_[at] = true;
  ids_.emplace(token, id);
}

void TokenTable::check_whole() const {
  FQ_CHECK(tokens_.size() > 1, "tokenizer", "the vocabulary has {} tokens: 2 or more are needed",
           tokens_.size());
  const auto hole = std::ranges::find(taken_, false) - taken_.begin();
  FQ_CHECK(hole == std::ssize(taken_), "tokenizer",
           "the vocabulary has a hole: no token has the id {}, and there are ids up to {}", hole,
           taken_.size() - 1);
}

std::optional<std::int32_t> TokenTable::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::vector<std::int32_t>> TokenTable::bytes_of(std::string_view text) const {
  std::vector<std::int32_t> out;
  for (const char c : text) {
    const auto id = find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(c)));
    if (!id) return std::nullopt;
    out.push_back(*id);
  }
  return out;
}

std::optional<char> byte_of(std::string_view token) {
  unsigned byte = 0;
  const bool one = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>') &&
                   std::from_chars(token.data() + 3, token.data() + 5, byte, 16).ptr == token.data() + 5;
  return one ? std::optional(static_cast<char>(byte)) : std::nullopt;
}

}  // namespace fq::detail
