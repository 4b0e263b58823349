// Samples are chosen and held out without a list of all of them.

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/data/detail/order.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/data/subset.h"

namespace fq::many_rows_test {
namespace {

using ::testing::ElementsAre;

/// Sample i is the number i, in blocks of 100,000; any number of samples without memory for them.
class Numbers : public Dataset {
 public:
  explicit Numbers(std::int64_t size) : size_(size) {}
  [[nodiscard]] std::int64_t size() const noexcept override { return size_; }
  [[nodiscard]] const Shape& sample_shape() const noexcept override { return shape_; }
  [[nodiscard]] std::int64_t classes() const noexcept override { return 0; }
  [[nodiscard]] bool token_ids() const noexcept override { return true; }
  [[nodiscard]] Batch read(std::span<const std::int64_t> rows) const override {
    for (const auto row : rows) EXPECT_TRUE(0 <= row && row < size_);
    return {Tensor::from(std::vector<std::int64_t>(rows.begin(), rows.end()), {std::ssize(rows), 1}), {}};
  }
  [[nodiscard]] std::vector<std::int64_t> block_starts() const override {
    std::vector<std::int64_t> starts;
    for (std::int64_t start = 0; start < size_; start += 100000) starts.push_back(start);
    return starts;
  }

 private:
  std::int64_t size_;
  Shape shape_{1};
};

std::shared_ptr<const Dataset> numbers(std::int64_t size) { return std::make_shared<Numbers>(size); }

std::vector<std::int64_t> read(const Dataset& data, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = begin; i < end; ++i) samples.push_back(i);
  return data.read(samples).x.to_vector<std::int64_t>();
}

std::vector<std::int64_t> all(const Dataset& data) { return read(data, 0, data.size()); }

constexpr std::int64_t kMany = std::int64_t{1} << 40;  // a table of them would take 8 TiB

TEST(ManyRows, ArePermutedByABijection) {
  for (const std::int64_t size : {1, 2, 65536, 65537, 100003, 262144}) {
    const detail::RowPermutation order(size, 5), other(size, 6);
    std::vector<bool> seen(std::size_t(size), false);
    std::int64_t same = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      ASSERT_TRUE(0 <= order[i] && order[i] < size && !seen[std::size_t(order[i])]);
      seen[std::size_t(order[i])] = true;
      same += order[i] == other[i] ? 1 : 0;
    }
    EXPECT_TRUE(size <= 2 || same < 20);  // one is expected of two permutations by chance
  }
}

TEST(ManyRows, SubsetsAreSpreadEvenly) {
  const auto rows = all(*some_samples(numbers(kMany), 10000, 3));
  ASSERT_EQ(rows.size(), 10000u);
  std::vector<int> counts(16, 0);
  for (const auto row : rows) ++counts[std::size_t(row / (kMany / 16))];
  for (const int count : counts) EXPECT_NEAR(count, 625, 125);  // five deviations of 25
  EXPECT_EQ(rows, all(*some_samples(numbers(kMany), 10000, 3)));
  EXPECT_NE(rows, all(*some_samples(numbers(kMany), 10000, 4)));
}

TEST(ManyRows, PartsAreDisjoint) {
  const auto data = numbers(300000);
  std::set<std::int64_t> seen;
  for (std::int64_t skip = 0; skip < 5000; skip += 1000)
    for (const auto row : all(*some_samples(data, 1000, 0, skip))) EXPECT_TRUE(seen.insert(row).second);
  EXPECT_EQ(seen.size(), 5000u);
  EXPECT_EQ(some_samples(numbers(kMany), 1000, 0, kMany - 10)->size(), 10);
}

TEST(ManyRows, AreSplitByLists) {
  for (const std::int64_t size : {2, 1000, 65536, 65537, 300000})
    for (const double fraction : {0.01, 0.3, 0.99}) {
      const auto lists = split_validation(size, fraction, 7);
      const auto held = hold_out(numbers(size), fraction, 7);
      ASSERT_EQ(all(*held.train), lists.train);
      ASSERT_EQ(all(*held.validation), lists.validation);
      ASSERT_EQ(std::ssize(lists.train) + std::ssize(lists.validation), size);
      for (const auto row : lists.validation) ASSERT_FALSE(std::ranges::binary_search(lists.train, row));
      const Subset subset(numbers(size), lists.train);
      EXPECT_EQ(held.train->block_starts(), subset.block_starts());
      EXPECT_EQ(held.train->fingerprint() == subset.fingerprint(), size <= 65536);
      EXPECT_TRUE(size == 2 ||
                  held.train->fingerprint() != hold_out(numbers(size), fraction, 9).train->fingerprint());
    }
}

TEST(ManyRows, AreHeldOutWithoutAList) {
  const auto held = hold_out(numbers(kMany), 0.1, 1);
  EXPECT_EQ(held.train->size() + held.validation->size(), kMany);
  EXPECT_NEAR(double(held.validation->size()), 0.1 * double(kMany), 1);
  DataLoader loader(held.validation, {.batch_size = 1000, .shuffle = false});
  const auto first = loader.next()->x.to_vector<std::int64_t>();
  EXPECT_TRUE(std::ranges::is_sorted(first));
  EXPECT_NEAR(double(first.back()), 10000, 1500);  // five deviations of 300
  const std::int64_t size = held.validation->size();
  EXPECT_NEAR(double(read(*held.validation, size - 1, size)[0]), double(kMany), 300);
  const auto some = some_held_out(kMany, 0.1, 1, 4);
  EXPECT_EQ(some[2], read(*held.validation, size / 2, size / 2 + 1)[0]);
  EXPECT_THROW((void)hold_out(numbers(2 * kMany), 0.1, 1), ArgumentError);
}

/// Subsets of small data sets must not change: recorded figures and checkpoints depend on them.
TEST(ManyRows, SmallSetsKeepTheirSelection) {
  EXPECT_THAT(split_validation(20, 0.3, 1).validation, ElementsAre(2, 3, 9, 11, 17, 19));
  std::uint64_t hash = 1469598103934665603u;
  for (const auto row : split_validation(65536, 0.1, 7).validation)
    hash = (hash ^ std::uint64_t(row)) * 1099511628211u;
  EXPECT_EQ(hash, 838725588062232942u);
  EXPECT_THAT(all(*some_samples(numbers(20), 4, 0)), ElementsAre(1, 12, 13, 14));
  EXPECT_THAT(all(*some_samples(numbers(20), 4, 0, 4)), ElementsAre(0, 6, 7, 19));
}

}  // namespace
}  // namespace fq::many_rows_test
