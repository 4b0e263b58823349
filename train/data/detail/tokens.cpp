#include "fakequant/train/data/detail/tokens.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <set>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/io/detail/hdf5_reader.h"

namespace fq::detail {
namespace {

constexpr std::array<std::string_view, 4> kUnits{"bytes", "words", "characters", "pieces"};
constexpr std::int64_t kUnknown = 1;

/// Calls use(character, offset) for each character of a text. Throws ArgumentError for bytes that are not
/// UTF-8.
template <class Use>
void visit_characters(std::string_view text, Use&& use) {
  for (std::size_t at = 0; at < text.size();) {
    // The number of leading ones in the first byte is the length of a character; 0 is ASCII.
    const int ones = std::countl_one(static_cast<unsigned char>(text[at]));
    const auto character = text.substr(at, std::size_t(std::max(ones, 1)));
    FQ_CHECK(ones == 0 || valid_utf8(character) == character, "tokens",
             "the text has a byte {:#04x} at offset {}, which is not UTF-8",
             static_cast<unsigned char>(text[at]), at);
    use(character, at);
    at += character.size();
  }
}

bool is_letter(unsigned char c) {
  return c >= 128 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\'';
}

/// Returns letters (all bytes from 128 on are), digits and apostrophes together, ASCII letters in lower case;
/// every other character, except spaces, is a word of its own.
std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < text.size();) {
    std::string word;
    while (i < text.size() && is_letter(static_cast<unsigned char>(text[i]))) {
      const char c = text[i++];
      word += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    }
    // Other characters are words of one byte. Spaces and control characters separate words.
    if (word.empty())
      if (const char c = text[i++]; c > ' ' && c < 127) word = c;
    if (!word.empty()) out.push_back(std::move(word));
  }
  return out;
}

std::string token_name(const std::string& token) {
  if (token.size() == 1 && static_cast<unsigned char>(token[0]) <= ' ')
    return fmt::format("\\x{:02x}", static_cast<unsigned char>(token[0]));
  return printable(token);
}

/// Returns the token of a name: a byte for "\x0a", the name itself for others.
std::string token_from_name(const std::string& name) {
  unsigned byte = 0;
  const bool one = name.size() == 4 && name.starts_with("\\x") &&
                   std::from_chars(name.data() + 2, name.data() + 4, byte, 16).ptr == name.data() + 4;
  return one ? std::string(1, static_cast<char>(byte)) : name;
}

// Returns whether a token has the length that its first byte announces in UTF-8.
bool is_character(const std::string& token) {
  const int ones = token.empty() ? -1 : std::countl_one(static_cast<unsigned char>(token[0]));
  return ones >= 0 && token.size() == std::size_t(std::max(ones, 1));
}

/// Returns the unit of a data set of text.
std::optional<TokenUnit> stored_unit(const Hdf5Reader& file) {
  const auto name = file.texts("/", "tokens");
  const auto* found = name && name->size() == 1 ? std::ranges::find(kUnits, name->front()) : kUnits.end();
  if (found == kUnits.end()) return std::nullopt;
  return static_cast<TokenUnit>(found - kUnits.begin());
}

/// Returns the text of a data set u8 [bytes]; empty for other types.
std::string stored_text(const Hdf5Reader& file, const char* name) {
  const auto rows = file.rows(name);
  if (rows.dtype() != DType::u8 || rows.shape().size() != 1) return {};
  const auto bytes = rows.read_all().to_vector<std::uint8_t>();
  return {bytes.begin(), bytes.end()};
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

std::vector<std::string> unique_characters(const std::string& text) {
  std::set<std::string, std::less<>> found;
  visit_characters(text, [&](std::string_view character, std::size_t) { found.emplace(character); });
  return {found.begin(), found.end()};
}

}  // namespace

Tokenizer::Tokenizer(std::vector<std::string> vocabulary, TokenUnit unit)
    : unit_(unit), vocabulary_(std::move(vocabulary)) {
  for (std::size_t i = 0; i < vocabulary_.size(); ++i) ids_.emplace(vocabulary_[i], std::int64_t(i));
}

Tokenizer::Tokenizer(std::shared_ptr<const TokenTable> table)
    : unit_(TokenUnit::pieces), table_(std::move(table)) {}

Tokenizer Tokenizer::from_names(const std::vector<std::string>& names) {
  // The default tokenizer (bytes) is recognized by its names: a network stores only class names.
  if (names == Tokenizer().class_names()) return {};
  std::vector<std::string> tokens;
  for (const auto& name : names) tokens.push_back(token_from_name(name));
  // Words have <pad> and <unk> as ids 0 and 1; characters have neither.
  if (tokens.size() > 1 && tokens[0] == "<pad>" && tokens[1] == "<unk>") return Tokenizer(std::move(tokens));
  FQ_CHECK(!tokens.empty() && std::ranges::all_of(tokens, is_character), "tokens",
           "the classes are {}: they are not the tokens of a text, as fakequant dataset from-text --windows "
           "names them",
           tokens.empty() ? "without names" : fmt::format("'{}' and others", names.back()));
  return Tokenizer(std::move(tokens), TokenUnit::characters);
}

std::string_view Tokenizer::unit_name() const noexcept { return kUnits[std::size_t(unit_)]; }

std::vector<std::string> Tokenizer::class_names() const {
  if (table_) return table_->tokens();
  std::vector<std::string> names;
  for (const auto& token : vocabulary_) names.push_back(token_name(token));
  if (unit_ != TokenUnit::bytes) return names;
  names.emplace_back("<pad>");
  for (int byte = 0; byte < 256; ++byte) names.push_back(token_name(std::string(1, char(byte))));
  return names;
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
  FQ_CHECK(unit_ != TokenUnit::pieces, "tokens",
           "tokens of a tokenizer.json are encoded by fakequant.data of Python");
  std::vector<std::int64_t> ids;
  const auto find = [&](std::string_view token) {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  };
  if (unit_ == TokenUnit::bytes)
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c) + 1);
  if (unit_ == TokenUnit::words)
    for (const auto& word : split_words(text)) ids.push_back(find(word) < 0 ? kUnknown : find(word));
  if (unit_ == TokenUnit::characters)
    visit_characters(text, [&](std::string_view character, std::size_t at) {
      FQ_CHECK(find(character) >= 0, "tokens",
               "the text has '{}' at offset {}, which is not in the vocabulary of {} characters",
               token_name(std::string(character)), at, vocabulary_.size());
      ids.push_back(find(character));
    });
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids) const {
  if (table_) return table_->decode(ids);
  // Id 0 is padding, except for characters.
  const std::int64_t first = unit_ == TokenUnit::characters ? 0 : 1;
  const std::int64_t size = unit_ == TokenUnit::bytes ? 257 : std::ssize(vocabulary_);
  std::string text;
  for (const auto id : ids) {
    if (id < first || id >= size) continue;
    if (unit_ == TokenUnit::bytes)
      text += char(id - 1);
    else
      text += (unit_ == TokenUnit::words && !text.empty() ? " " : "") + vocabulary_[std::size_t(id)];
  }
  return text;
}

Tokenizer read_tokenizer(const std::string& path) {
  const Hdf5Reader file(path);
  const auto fail = [&](const std::string& why) {
    throw FileError(path, "vocabulary", fmt::format("[dataset] {} {}", path, why));
  };
  const auto unit = stored_unit(file);
  if (!unit) fail("is no data set of text, by fakequant dataset from-text");
  if (unit == TokenUnit::bytes) return {};
  if (unit == TokenUnit::pieces) return Tokenizer(read_token_table(path));
  const std::string text = stored_text(file, "vocabulary");
  std::vector<std::string> tokens;
  try {
    tokens = unit == TokenUnit::words ? split_lines(text) : unique_characters(text);
  } catch (const ArgumentError&) {  // reported below
  }
  if (tokens.empty() || (unit == TokenUnit::words && tokens.size() < 2)) fail("has a damaged vocabulary");
  return Tokenizer(std::move(tokens), *unit);
}

std::shared_ptr<const TokenTable> read_token_table(const std::string& path) {
  const Hdf5Reader file(path);
  if (stored_unit(file) != TokenUnit::pieces) return nullptr;
  return TokenTable::parse(stored_text(file, "tokenizer"), path);
}

}  // namespace fq::detail
