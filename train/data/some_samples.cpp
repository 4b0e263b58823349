#include "fakequant/train/data/some_samples.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "fakequant/core/detail/check.h"
#include "fakequant/train/data/detail/random.h"

namespace fq {

std::shared_ptr<const Dataset> some_samples(std::shared_ptr<const Dataset> data, std::int64_t count,
                                            std::uint64_t seed, std::int64_t skip) {
  FQ_CHECK(skip < data->size(), "calibrate", "skip is {} and there are {} samples: give less", skip,
           data->size());
  if (skip == 0 && count >= data->size()) return data;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(data->size()));
  std::iota(rows.begin(), rows.end(), 0);
  detail::Draws(seed, 0, 0).shuffle(rows);
  rows.resize(static_cast<std::size_t>(std::min(data->size(), skip + count)));
  rows.erase(rows.begin(), rows.begin() + skip);
  std::ranges::sort(rows);
  return std::make_shared<Subset>(std::move(data), std::move(rows));
}

}  // namespace fq
