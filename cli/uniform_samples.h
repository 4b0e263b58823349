#pragma once

/// Samples without a meaning, to compare two implementations of one network on.

#include "fakequant/train/data/dataset.h"

namespace fq::cli {

/// The smallest and the largest value of all samples.
struct ValueRange {
  float low = 0, high = 0;
};
[[nodiscard]] ValueRange range_of(const std::shared_ptr<const Dataset>& data, std::int64_t batch);
/// One more than the largest id of data of token ids.
[[nodiscard]] std::int64_t tokens_of(const std::shared_ptr<const Dataset>& data, std::int64_t batch);

/// `count` samples of uniform values in `range`; sample i is a function of (seed, i).
class UniformSamples : public Dataset {
 public:
  UniformSamples(Shape sample_shape, std::int64_t count, ValueRange range, std::uint64_t seed)
      : shape_(std::move(sample_shape)), count_(count), range_(range), seed_(seed) {}

  [[nodiscard]] std::int64_t size() const noexcept override { return count_; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return 0; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;

 private:
  Shape shape_;
  std::int64_t count_;
  ValueRange range_;
  std::uint64_t seed_;
};

/// `count` samples of token ids below `tokens`; sample i is a function of (seed, i).
class UniformTokens : public Dataset {
 public:
  UniformTokens(Shape sample_shape, std::int64_t count, std::int64_t tokens, std::uint64_t seed)
      : shape_(std::move(sample_shape)), count_(count), tokens_(tokens), seed_(seed) {}

  [[nodiscard]] std::int64_t size() const noexcept override { return count_; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return 0; }
  [[nodiscard]] bool token_ids() const noexcept override { return true; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override;

 private:
  Shape shape_;
  std::int64_t count_, tokens_;
  std::uint64_t seed_;
};

}  // namespace fq::cli
