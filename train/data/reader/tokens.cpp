#include "fakequant/train/data/reader/tokens.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

constexpr std::size_t kMostWords = std::size_t{1} << 24;
constexpr std::int32_t kUnknown = 1;

}  // namespace

Tokenizer::Tokenizer(std::vector<std::string> vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (std::size_t i = 0; i < vocabulary_.size(); ++i) ids_.emplace(vocabulary_[i], std::int32_t(i));
}

std::int64_t Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& to) const {
  std::ranges::fill(to, 0);
  if (!of_words()) {
    for (std::size_t i = 0; i < std::min(text.size(), to.size()); ++i)
      to[i] = std::int32_t(static_cast<unsigned char>(text[i])) + 1;
    return std::int64_t(text.size());
  }
  std::size_t count = 0;
  for_each_word(text, [&](const std::string& word) {
    if (count < to.size()) {
      const auto found = ids_.find(word);
      to[count] = found == ids_.end() ? kUnknown : found->second;
    }
    ++count;
  });
  return std::int64_t(count);
}

void WordCount::add(std::string_view text) {
  for_each_word(text, [&](const std::string& word) { ++counts_[word]; });
  FQ_CHECK(counts_.size() <= kMostWords, "dataset",
           "the text has more than {} different words: give --tokens bytes", kMostWords);
}

std::vector<std::string> WordCount::vocabulary(std::int64_t most) const {
  std::vector<std::pair<std::string, std::int64_t>> words(counts_.begin(), counts_.end());
  std::ranges::stable_sort(words, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> out{"<pad>", "<unk>"};
  for (const auto& [word, count] : words)
    if (std::int64_t(out.size()) < most) out.push_back(word);
  return out;
}

}  // namespace fq::detail
