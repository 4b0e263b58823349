#include "fakequant/train/data/writer/vocabulary.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/hdf5_reader.h"

namespace fq::detail {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  return lines;
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
  const auto rows = file.rows("vocabulary");
  if (rows.dtype() != DType::u8 || rows.shape().size() != 1) refuse("has a damaged vocabulary");
  const auto bytes = rows.read_all().to_vector<std::uint8_t>();
  const std::string text(bytes.begin(), bytes.end());
  if (unit == TokenUnit::characters) return Tokenizer(characters_of(text, path), unit);
  auto words = lines_of(text);
  if (words.size() < 2) refuse("has a vocabulary of fewer than 2 words");
  return Tokenizer(std::move(words));
}

}  // namespace fq::detail
