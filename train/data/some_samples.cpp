#include "fakequant/train/data/some_samples.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/row_permutation.h"

namespace fq {

std::shared_ptr<const Dataset> some_samples(std::shared_ptr<const Dataset> data, std::int64_t count,
                                            std::uint64_t seed, std::int64_t skip) {
  FQ_CHECK(skip < data->size(), "calibrate", "skip is {} and there are {} samples: give less", skip,
           data->size());
  if (skip == 0 && count >= data->size()) return data;
  const std::int64_t end = count < data->size() - skip ? skip + count : data->size();
  const detail::RowPermutation order(data->size(), seed);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = skip; i < end; ++i) rows.push_back(order[i]);
  std::ranges::sort(rows);
  return std::make_shared<Subset>(std::move(data), std::move(rows));
}

}  // namespace fq
