#include "fakequant/train/data/writer/vocabulary.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/io/detail/hdf5_reader.h"

namespace fq::detail {

std::vector<std::string> read_vocabulary(const std::string& path) {
  const Hdf5Reader file(path);
  const auto refuse = [&](const char* why) {
    throw FileError(path, "vocabulary", fmt::format("[dataset] {} {}", path, why));
  };
  const auto kind = file.texts("/", "tokens");
  if (!kind || kind->size() != 1 || (kind->front() != "bytes" && kind->front() != "words"))
    refuse("is no data set of text, by fakequant dataset from-text");
  if (kind->front() == "bytes") return {};
  const auto rows = file.rows("vocabulary");
  if (rows.dtype() != DType::u8 || rows.shape().size() != 1) refuse("has a damaged vocabulary");
  const Tensor bytes = rows.read_all();
  std::vector<std::string> words(1);
  for (const auto c : bytes.to_vector<std::uint8_t>())
    if (c == '\n')
      words.emplace_back();
    else
      words.back() += char(c);
  words.pop_back();
  if (words.size() < 2) refuse("has a vocabulary of fewer than 2 words");
  return words;
}

}  // namespace fq::detail
