#pragma once

/// Permutations of samples, computed at any position without a table of all samples.

#include <cstdint>
#include <vector>

#include "fakequant/train/data/dataset.h"

namespace fq::detail {

/// Permutation of 0 .. size - 1, selected by `seed`. Up to 65,536 rows use a table with a Fisher-Yates
/// shuffle. More rows use a keyed bijection without a table: a Feistel network on the least sufficient even
/// number of bits, repeated until the result is in range (Black and Rogaway, "Ciphers with Arbitrary Finite
/// Domains", 2002).
class RowPermutation {
 public:
  RowPermutation(std::int64_t size, std::uint64_t seed);

  [[nodiscard]] std::int64_t operator[](std::int64_t i) const;

 private:
  [[nodiscard]] std::uint64_t once(std::uint64_t value) const noexcept;

  std::uint64_t size_, seed_;
  int half_bits_;
  std::vector<std::int64_t> table_;
};

/// Order of the samples in an epoch, a function of (data set, seed, epoch) that can be read from any
/// position. With `draws`, an ascending list with repeated or missing samples, it permutes the
/// draws. Shuffles blocks, then samples within windows of all blocks that fit the data set's cache. Each
/// block is read once per epoch. Data that fits the cache is permuted as a whole.
class EpochOrder {
 public:
  EpochOrder(const Dataset& data, bool shuffle, std::uint64_t seed, std::int64_t epoch,
             std::vector<std::int64_t> draws = {});

  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }
  /// Returns the samples at positions [begin, end).
  [[nodiscard]] std::vector<std::int64_t> samples(std::int64_t begin, std::int64_t end);

 private:
  void load_window(std::size_t window);

  bool shuffle_;
  std::uint64_t seed_;
  std::int64_t epoch_, size_;
  std::vector<std::int64_t> draws_;          // empty if every sample comes once
  std::vector<std::int64_t> starts_;         // first draw of each block, then the number of draws
  std::vector<std::int64_t> blocks_;         // in epoch order
  std::vector<std::int64_t> window_starts_;  // first position of each window, then the size
  std::int64_t window_blocks_;
  std::size_t window_;
  std::vector<std::int64_t> window_samples_;
};

}  // namespace fq::detail
