#include <vector>

#include "fakequant/train/data/reader/tokenizer/tokenizer_file.h"
#include "reader.h"

void fq::fuzz::read_tokenizer(const std::string& path) {
  const auto tokenizer = detail::TokenizerFile::load(path);
  const auto ids = tokenizer->encode("To be, or not to be: \xc3\xa9t\xc3\xa9 2 x\n", path);
  (void)tokenizer->decode(std::vector<std::int64_t>(ids.begin(), ids.end()));
}
