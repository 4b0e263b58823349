#include "fakequant/train/data/reader/tokens.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/utf8.h"
#include "fakequant/train/data/reader/tokenizer/tokenizer_file.h"

namespace fq::detail {
namespace {

constexpr std::size_t kMostWords = std::size_t{1} << 24;
constexpr std::int32_t kUnknown = 1;

/// Calls `use` with each character and its offset.
template <class Use>
void for_each_character(std::string_view text, const std::string& path, Use&& use) {
  for (std::size_t at = 0; at < text.size();) {
    const int ones = std::countl_one(static_cast<unsigned char>(text[at]));
    const auto character = text.substr(at, std::size_t(std::max(ones, 1)));
    if (ones > 0 && valid_utf8(character) != character)
      throw FileError(
          path, "",
          fmt::format("[dataset] {} has a byte {:#04x} at offset {}, which is no UTF-8: save it as "
                      "UTF-8, or give --tokens bytes",
                      path, static_cast<unsigned char>(text[at]), at));
    use(character, at);
    at += character.size();
  }
}

std::string written_out(const std::string& token) {
  if (token.size() == 1 && static_cast<unsigned char>(token[0]) <= ' ')
    return fmt::format("\\x{:02x}", static_cast<unsigned char>(token[0]));
  return printable(token);
}

/// What `written_out` made the name of: a byte of "\\x0a", any other token as it is.
std::string read_back(const std::string& name) {
  unsigned byte = 0;
  const bool one = name.size() == 4 && name.starts_with("\\x") &&
                   std::from_chars(name.data() + 2, name.data() + 4, byte, 16).ptr == name.data() + 4;
  return one ? std::string(1, static_cast<char>(byte)) : name;
}

bool is_character(const std::string& token) {
  const int ones = token.empty() ? -1 : std::countl_one(static_cast<unsigned char>(token[0]));
  return ones >= 0 && token.size() == std::size_t(std::max(ones, 1));
}

}  // namespace

const std::vector<std::string>& token_units() {
  static const std::vector<std::string> names{"bytes", "words", "characters", "pieces"};
  return names;
}

Tokenizer::Tokenizer(std::vector<std::string> vocabulary, TokenUnit unit)
    : unit_(unit), vocabulary_(std::move(vocabulary)) {
  for (std::size_t i = 0; i < vocabulary_.size(); ++i) ids_.emplace(vocabulary_[i], std::int32_t(i));
}

Tokenizer::Tokenizer(std::shared_ptr<const TokenizerFile> file)
    : unit_(TokenUnit::pieces), file_(std::move(file)), vocabulary_(file_->tokens()) {}

Tokenizer Tokenizer::of_class_names(const std::vector<std::string>& names) {
  if (names == Tokenizer().class_names()) return {};
  std::vector<std::string> tokens;
  for (const auto& name : names) tokens.push_back(read_back(name));
  if (tokens.size() > 1 && tokens[0] == "<pad>" && tokens[1] == "<unk>") return Tokenizer(std::move(tokens));
  FQ_CHECK(!tokens.empty() && std::ranges::all_of(tokens, is_character), "tokens",
           "the classes are {}: they are not the tokens of a text, as fakequant dataset from-text --windows "
           "names them",
           tokens.empty() ? "without names" : fmt::format("'{}' and others", names.back()));
  return Tokenizer(std::move(tokens), TokenUnit::characters);
}

std::vector<std::string> Tokenizer::class_names() const {
  if (unit_ == TokenUnit::pieces) return vocabulary_;
  std::vector<std::string> names;
  for (const auto& token : vocabulary_) names.push_back(written_out(token));
  if (unit_ != TokenUnit::bytes) return names;
  names.emplace_back("<pad>");
  for (int byte = 0; byte < 256; ++byte) names.push_back(written_out(std::string(1, char(byte))));
  return names;
}

std::int64_t Tokenizer::encode(std::string_view text, std::vector<std::int32_t>& to) const {
  if (unit_ == TokenUnit::pieces) {
    const auto ids = file_->encode(text, "the text");
    FQ_CHECK(file_->filling() || ids.size() >= to.size(), "tokens",
             "a text has {} tokens, a sample {}, and the tokenizer has no token that fills, \"pad_id\" or "
             "<pad>: give --windows, or a smaller --length",
             ids.size(), to.size());
    std::ranges::fill(to, file_->filling().value_or(0));
    std::copy_n(ids.begin(), std::min(ids.size(), to.size()), to.begin());
    return std::int64_t(ids.size());
  }
  std::ranges::fill(to, 0);
  if (unit_ == TokenUnit::bytes) {
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

std::vector<std::int32_t> Tokenizer::encode_all(std::string_view text, const std::string& path) const {
  if (unit_ == TokenUnit::pieces) return file_->encode(text, path);
  std::vector<std::int32_t> ids;
  if (unit_ != TokenUnit::characters) {
    ids.resize(std::size_t(encode(text, ids)));
    (void)encode(text, ids);
    return ids;
  }
  for_each_character(text, path, [&](std::string_view character, std::size_t at) {
    const auto found = ids_.find(character);
    if (found == ids_.end())
      throw FileError(
          path, "",
          fmt::format("[dataset] {} has '{}' at offset {}, which is none of the {} characters of the "
                      "vocabulary",
                      path, written_out(std::string(character)), at, size()));
    ids.push_back(found->second);
  });
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  if (unit_ == TokenUnit::pieces) return file_->decode(ids);
  const std::int64_t first = unit_ == TokenUnit::characters ? 0 : 1;
  std::string text;
  for (const auto id : ids) {
    if (id < first || id >= size()) continue;
    if (unit_ == TokenUnit::bytes)
      text += char(id - 1);
    else
      text += (unit_ == TokenUnit::words && !text.empty() ? " " : "") + vocabulary_[std::size_t(id)];
  }
  return text;
}

std::vector<std::string> characters_of(std::string_view text, const std::string& path) {
  std::set<std::string, std::less<>> found;
  for_each_character(text, path, [&](std::string_view character, std::size_t) {
    if (!found.contains(character)) found.emplace(character);
  });
  return {found.begin(), found.end()};
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
