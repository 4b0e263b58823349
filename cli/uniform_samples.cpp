#include "fakequant/cli/uniform_samples.h"

#include <algorithm>
#include <limits>

#include "fakequant/core/random.h"
#include "fakequant/train/data/loader.h"

namespace fq::cli {

ValueRange range_of(const std::shared_ptr<const Dataset>& data, std::int64_t batch) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  ValueRange range{infinity, -infinity};
  DataLoader loader(data, {.batch_size = batch, .shuffle = false});
  while (auto next = loader.next()) {
    const auto [low, high] =
        std::minmax_element(next->x.data<float>(), next->x.data<float>() + next->x.numel());
    range = {std::min(range.low, *low), std::max(range.high, *high)};
  }
  return range;
}

std::int64_t tokens_of(const std::shared_ptr<const Dataset>& data, std::int64_t batch) {
  std::int64_t largest = 0;
  DataLoader loader(data, {.batch_size = batch, .shuffle = false});
  while (auto next = loader.next()) {
    const auto* ids = next->x.data<std::int64_t>();
    largest = std::max(largest, *std::max_element(ids, ids + next->x.numel()));
  }
  return largest + 1;
}

Batch UniformSamples::read(std::span<const std::int64_t> rows) const {
  Shape shape = shape_;
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  Batch batch{Tensor::empty(shape), {}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Tensor row = batch.x.slice(static_cast<std::int64_t>(i), static_cast<std::int64_t>(i) + 1);
    fill_uniform(row, range_.low, range_.high, seed_, static_cast<std::uint64_t>(rows[i]));
  }
  return batch;
}

Batch UniformTokens::read(std::span<const std::int64_t> rows) const {
  Shape shape = shape_;
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  Batch batch{Tensor::empty(shape, DType::i64), {}};
  auto* ids = batch.x.mutable_data<std::int64_t>();
  for (const std::int64_t row : rows) {
    Tensor drawn = Tensor::empty(shape_);
    fill_uniform(drawn, 0, static_cast<double>(tokens_), seed_, static_cast<std::uint64_t>(row));
    for (const float v : drawn.to_vector<float>())
      *ids++ = std::min(static_cast<std::int64_t>(v), tokens_ - 1);  // f32 may round up to `tokens_`
  }
  return batch;
}

}  // namespace fq::cli
