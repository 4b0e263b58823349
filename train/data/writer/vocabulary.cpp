#include "fakequant/train/data/writer/vocabulary.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/hdf5_reader.h"
#include "fakequant/train/data/reader/tokenizer/tokenizer_file.h"

namespace fq::detail {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
}

/// Of u8 [bytes]; empty for another.
std::string text_in(const Hdf5Reader& file, const char* name) {
  const auto rows = file.rows(name);
  if (rows.dtype() != DType::u8 || rows.shape().size() != 1) return {};
  const auto bytes = rows.read_all().to_vector<std::uint8_t>();
  return {bytes.begin(), bytes.end()};
}

}  // namespace

Tokenizer read_tokenizer(const std::string& path) {
  const Hdf5Reader file(path);
  const auto refuse = [&](const char* why) {
    throw FileError(path, "vocabulary", fmt::format("[dataset] {} {}", path, why));
  };
  const auto kind = file.texts("/", "tokens");
  const auto& units = token_units();
  const auto found = kind && kind->size() == 1 ? std::ranges::find(units, kind->front()) : units.end();
  if (found == units.end()) refuse("is no data set of text, by fakequant dataset from-text");
  const auto unit = static_cast<TokenUnit>(found - units.begin());
  if (unit == TokenUnit::bytes) return {};
  const bool pieces = unit == TokenUnit::pieces;
  const std::string text = text_in(file, pieces ? "tokenizer" : "vocabulary");
  if (text.empty()) refuse(pieces ? "has a damaged tokenizer" : "has a damaged vocabulary");
  if (pieces) return Tokenizer(TokenizerFile::parse(text, path));
  if (unit == TokenUnit::characters) return Tokenizer(characters_of(text, path), unit);
  auto words = lines_of(text);
  if (words.size() < 2) refuse("has a vocabulary of fewer than 2 words");
  return Tokenizer(std::move(words));
}

std::shared_ptr<const TokenizerFile> read_tokenizer_file(const std::string& path) {
  const Hdf5Reader file(path);
  const auto kind = file.texts("/", "tokens");
  if (!kind || *kind != std::vector{token_units()[std::size_t(TokenUnit::pieces)]}) return nullptr;
  return TokenizerFile::parse(text_in(file, "tokenizer"), path);
}

DataSetOptions options_of(const Tokenizer& tokenizer) {
  if (const auto* file = tokenizer.file())
    return {.tokens = tokenizer.unit_name(), .tokenizer = file->text()};
  return {.vocabulary = tokenizer.vocabulary(), .tokens = tokenizer.unit_name()};
}

}  // namespace fq::detail
