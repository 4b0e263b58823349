#include "fakequant/reference/detail/torchao_ranges.h"

#include <algorithm>

#include "fakequant/core/detail/check.h"
#include "fakequant/reference/torchao.h"

namespace fq::torchao {

Reduction reduction(const Shape& input, const Shape& block_size, const char* function) {
  Reduction r{block_size, {}, scale_shape(input, block_size, function)};
  for (std::size_t a = 0; a < input.size(); ++a)
    if (block_size[a] == 1 || block_size[a] != input[a]) r.result.push_back(r.kept[a]);
  if (std::ranges::all_of(block_size, [](std::int64_t length) { return length == 1; })) {
    r.block = input;
    r.result.clear();
  }
  return r;
}

void check_kept(const Reduction& r, const char* function) {
  FQ_CHECK(numel(r.kept) == numel(r.result), function,
           "a block of all ones is reduced to one result, keepdim needs {}: choose another block",
           to_string(r.kept));
}

}  // namespace fq::torchao
