#pragma once

/// Permutations of samples, computed at any position without a table of all samples.

#include <cstdint>
#include <vector>

#include "fakequant/train/data/dataset.h"

namespace fq::detail {

/// Of 0 .. size - 1, by `seed`. Up to 65,536 rows lie in a table, shuffled by Fisher and Yates; more are a
/// keyed bijection: a Feistel network on the least even number of bits that has them all, walked until it
/// is within (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002). No memory grows with them.
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

/// A permutation of the samples that is a function of (data set, seed, epoch) and can be read from any
/// position, or of `draws` of them, ascending, where some come several times and some not at all. Blocks are
/// shuffled, then samples within windows of as many blocks as fit the data set's cache:
/// every block is read once an epoch, and a data set that fits the cache gets a permutation of all samples.
class EpochOrder {
 public:
  EpochOrder(const Dataset& data, bool shuffle, std::uint64_t seed, std::int64_t epoch,
             std::vector<std::int64_t> draws = {});

  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }
  /// The samples at positions [begin, end).
  [[nodiscard]] std::vector<std::int64_t> samples(std::int64_t begin, std::int64_t end);

 private:
  void load_window(std::size_t window);

  bool shuffle_;
  std::uint64_t seed_;
  std::int64_t epoch_, size_;
  std::vector<std::int64_t> draws_;          // empty for every sample once
  std::vector<std::int64_t> starts_;         // of each block among the draws, and their number at the end
  std::vector<std::int64_t> blocks_;         // in the order of the epoch
  std::vector<std::int64_t> window_starts_;  // positions, and the size at the end
  std::int64_t window_blocks_;
  std::size_t window_;
  std::vector<std::int64_t> window_samples_;
};

}  // namespace fq::detail
