#include <numeric>
#include <vector>

#include "fakequant/train/data/detail/token_table.h"
#include "reader.h"

void fq::fuzz::read_tokenizer(const std::string& path) {
  const auto table = detail::TokenTable::load(path);
  std::vector<std::int64_t> ids(table->tokens().size());
  std::iota(ids.begin(), ids.end(), 0);
  (void)table->decode(ids);
}
