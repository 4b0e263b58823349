#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/data/detail/order.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/data/loader.h"

namespace fq::data_loader_test {
namespace {

using testing::ElementsAre;

/// Sample i is the number i. Block size and cache are options; counts the reads of blocks.
class Numbers : public Dataset {
 public:
  Numbers(std::int64_t size, std::int64_t block, std::int64_t at_once, std::int64_t broken = -1)
      : size_(size), block_(block), at_once_(at_once), broken_(broken) {}

  std::int64_t size() const noexcept override { return size_; }
  const Shape& sample_shape() const noexcept override { return shape_; }
  std::int64_t classes() const noexcept override { return size_; }
  Batch read(std::span<const std::int64_t> rows) const override {
    std::vector<float> x(rows.begin(), rows.end());
    for (const auto row : rows)
      if (row == broken_) throw FileError("numbers", "x", "broken");
    const auto count = static_cast<std::int64_t>(rows.size());
    return {Tensor::from(x, {count, 1}),
            Tensor::from(std::vector<std::int64_t>(rows.begin(), rows.end()), {count})};
  }
  std::vector<std::int64_t> block_starts() const override {
    std::vector<std::int64_t> starts;
    for (std::int64_t start = 0; start < size_; start += block_) starts.push_back(start);
    return starts;
  }
  std::int64_t blocks_at_once() const noexcept override { return at_once_; }

 private:
  Shape shape_{1};
  std::int64_t size_, block_, at_once_, broken_;
};

std::vector<std::int64_t> read_epoch(DataLoader& loader) {
  std::vector<std::int64_t> all;
  while (const auto batch = loader.next()) {
    const auto y = batch->y.to_vector<std::int64_t>();
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

std::vector<std::int64_t> first(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

std::vector<std::int64_t> sorted(std::vector<std::int64_t> values) {
  std::ranges::sort(values);
  return values;
}

std::shared_ptr<const Dataset> numbers(std::int64_t size, std::int64_t block = 1000,
                                       std::int64_t at_once = 1) {
  return std::make_shared<Numbers>(size, block, at_once);
}

TEST(DataLoader, ShufflesEveryEpochDifferently) {
  for (const std::int64_t block : {1, 7, 64, 1000}) {
    DataLoader loader(numbers(203, block, 4), {.batch_size = 10, .seed = 3});
    const auto a = read_epoch(loader), b = read_epoch(loader);
    EXPECT_EQ(sorted(a), first(203)) << block;
    EXPECT_EQ(sorted(b), first(203)) << block;
    EXPECT_NE(a, first(203));
    EXPECT_NE(a, b);
    DataLoader other(numbers(203, block, 4), {.batch_size = 10, .seed = 4});
    EXPECT_NE(read_epoch(other), a);
    DataLoader same(numbers(203, block, 4), {.batch_size = 10, .seed = 3});
    EXPECT_EQ(read_epoch(same), a);
  }
}

TEST(DataLoader, WindowsReadEveryBlockOnce) {
  detail::EpochOrder order(*numbers(1000, 10, 5), true, 1, 0);
  const auto all = order.samples(0, 1000);
  std::set<std::int64_t> finished;
  for (std::size_t window = 0; window < 20; ++window) {
    std::set<std::int64_t> blocks;
    for (std::size_t i = window * 50; i < window * 50 + 50; ++i) blocks.insert(all[i] / 10);
    EXPECT_EQ(blocks.size(), 5u);
    for (const auto block : blocks) EXPECT_TRUE(finished.insert(block).second);
  }
  EXPECT_NE(all[0] / 10, all[1] / 10 == all[0] / 10 ? all[2] / 10 : all[1] / 10);
}

TEST(DataLoader, ReadsAPermutationFromAnyPosition) {
  detail::EpochOrder order(*numbers(97, 10, 3), true, 1, 5);
  const auto all = order.samples(0, 97);
  for (std::int64_t begin = 0; begin < 97; begin += 13)
    for (std::int64_t end = begin; end <= 97; end += 7)
      EXPECT_EQ(order.samples(begin, end), std::vector(all.begin() + begin, all.begin() + end));
}

// With every permutation as likely, sample 0 lands at each of 8 places equally often: chi-squared, 7 degrees
// of freedom, fails one time in 10^5 for a fair shuffle; the seed is fixed.
TEST(DataLoader, PermutationIsUniform) {
  std::vector<int> places(8);
  for (std::int64_t epoch = 0; epoch < 8000; ++epoch) {
    const auto all = detail::EpochOrder(*numbers(8), true, 42, epoch).samples(0, 8);
    ++places[static_cast<std::size_t>(std::ranges::find(all, 0) - all.begin())];
  }
  double chi = 0;
  for (const int count : places) chi += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi, 34);
}

TEST(DataLoader, KeepsOrDropsTheLastBatch) {
  DataLoader keep(numbers(25), {.batch_size = 10, .shuffle = false});
  EXPECT_EQ(keep.batches_per_epoch(), 3);
  EXPECT_EQ(read_epoch(keep), first(25));
  DataLoader drop(numbers(25), {.batch_size = 10, .shuffle = false, .drop_last = true});
  EXPECT_EQ(drop.batches_per_epoch(), 2);
  EXPECT_EQ(read_epoch(drop), first(20));
  EXPECT_EQ(drop.epoch(), 1);
}

AugmentOptions everything() {
  return {.resized_crop = 0.5,
          .crop = 1,
          .shift = 0.6,
          .rotation = 7.5,
          .scale = 0.1,
          .shear = 0.1,
          .hflip = 0.5,
          .vflip = 0.5,
          .randaugment = 2,
          .brightness = 0.2,
          .contrast = 0.2,
          .blur = 0.5,
          .noise = 0.05,
          .cutout = 2,
          .mixup = 0.3,
          .cutmix = 1};
}

/// Keeps which rows were read.
class Watched final : public Numbers {
 public:
  using Numbers::Numbers;
  Batch read(std::span<const std::int64_t> rows) const override {
    const std::lock_guard guard(mutex_);
    read_.insert(read_.end(), rows.begin(), rows.end());
    return Numbers::read(rows);
  }
  [[nodiscard]] std::vector<std::int64_t> rows() const {
    const std::lock_guard guard(mutex_);
    return read_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::int64_t> read_;
};

TEST(DataLoader, EachPartReadsOnlyItsRows) {
  std::vector<std::int64_t> all;
  for (std::int64_t part = 0; part < 3; ++part) {
    const auto data = std::make_shared<Watched>(103, 20, 2);
    DataLoader loader(data, {.batch_size = 4, .seed = 7, .prefetch = 0, .part = part, .parts = 3, .turn = 4});
    std::vector<std::int64_t> given;
    std::int64_t passed_over = 0;
    while (const auto batch = loader.next()) {
      passed_over += batch->passed_over;
      if (batch->passed_over > 0) continue;
      const auto y = batch->y.to_vector<std::int64_t>();
      given.insert(given.end(), y.begin(), y.end());
    }
    EXPECT_EQ(data->rows(), given);
    EXPECT_EQ(passed_over + std::ssize(given), 103);
    all.insert(all.end(), given.begin(), given.end());
  }
  std::ranges::sort(all);
  EXPECT_EQ(all, first(103));
}

TEST(ThreadsDataLoader, PrefetchChangesNothing) {
  const auto data = std::make_shared<Hdf5Dataset>(FAKEQUANT_SOURCE_DIR "/data/digits.h5");
  LoaderOptions options{
      .batch_size = 100, .seed = 9, .prefetch = 0, .augment = everything(), .balanced = true};
  DataLoader plain(data, options);
  for (const std::int64_t depth : {1, 3}) {
    options.prefetch = depth;
    DataLoader ahead(data, options);
    plain.start_epoch(0);
    for (int i = 0; i < 40; ++i) {
      const auto a = plain.next(), b = ahead.next();
      ASSERT_EQ(a.has_value(), b.has_value());
      ASSERT_EQ(plain.position(), ahead.position());
      if (!a) continue;
      EXPECT_TRUE(bitwise_equal(a->x, b->x));
      EXPECT_TRUE(bitwise_equal(a->y, b->y));
    }
  }
}

TEST(ThreadsDataLoader, ResumesAnywhere) {
  const LoaderOptions options{.batch_size = 8, .seed = 5};
  DataLoader whole(numbers(50, 6, 2), options);
  std::vector<std::pair<StateDict, std::vector<std::int64_t>>> steps;
  for (int i = 0; i < 20; ++i) {
    auto state = whole.state_dict();
    const auto batch = whole.next();
    steps.emplace_back(std::move(state),
                       batch ? batch->y.to_vector<std::int64_t>() : std::vector<std::int64_t>{});
  }
  for (std::size_t start = 0; start < steps.size(); start += 3) {
    DataLoader again(numbers(50, 6, 2), {.batch_size = 8, .seed = 77});
    (void)again.next();
    again.load_state_dict(steps[start].first);
    for (std::size_t i = start; i < steps.size(); ++i) {
      const auto batch = again.next();
      EXPECT_EQ(batch ? batch->y.to_vector<std::int64_t>() : std::vector<std::int64_t>{}, steps[i].second);
    }
  }
}

TEST(DataLoader, RejectsTheStateOfOtherData) {
  DataLoader loader(numbers(50), {.batch_size = 8});
  const auto state = loader.state_dict();
  EXPECT_THROW(DataLoader(numbers(51), {.batch_size = 8}).load_state_dict(state), ArgumentError);
  EXPECT_THROW(DataLoader(numbers(50), {.batch_size = 9}).load_state_dict(state), ArgumentError);
  EXPECT_THROW(loader.load_state_dict(StateDict()), ArgumentError);
  for (const auto& value :
       {nlohmann::json(-1), nlohmann::json("x"), nlohmann::json(51), nlohmann::json(1.5)}) {
    auto broken = state;
    broken.set_attribute("position", value);
    EXPECT_THROW(loader.load_state_dict(broken), ArgumentError) << value;
  }
  EXPECT_EQ(loader.position(), 0);
}

TEST(ThreadsDataLoader, ReportsThreadErrorsInOrder) {
  for (const std::int64_t prefetch : {0, 2}) {
    DataLoader loader(std::make_shared<Numbers>(50, 50, 1, 25),
                      {.batch_size = 10, .shuffle = false, .prefetch = prefetch});
    EXPECT_TRUE(loader.next());
    EXPECT_TRUE(loader.next());
    EXPECT_THROW((void)loader.next(), FileError);
    EXPECT_EQ(loader.position(), 20);
    EXPECT_THROW((void)loader.next(), FileError);
  }
}

TEST(ThreadsDataLoader, DestructorStopsPrefetch) {
  for (int i = 0; i < 50; ++i) {
    DataLoader loader(numbers(1000), {.batch_size = 10});
    if (i % 2 == 0) {
      EXPECT_TRUE(loader.next());
    }
  }
}

TEST(DataLoader, RejectsOptionsOutOfRange) {
  EXPECT_THROW(DataLoader(numbers(9), {.batch_size = 10}), ArgumentError);
  EXPECT_NO_THROW(DataLoader(numbers(9), {.batch_size = 10, .shuffle = false}));
  EXPECT_THROW(DataLoader(numbers(9), {.batch_size = 10, .shuffle = false, .drop_last = true}),
               ArgumentError);
  EXPECT_THROW(DataLoader(numbers(9), {.batch_size = 0}), ArgumentError);
  EXPECT_THROW(DataLoader(numbers(9), {.batch_size = 1, .prefetch = -1}), ArgumentError);
  EXPECT_THROW(DataLoader(nullptr, {}), ArgumentError);
  EXPECT_THROW(DataLoader(numbers(9), {.batch_size = 1, .augment = {.shift = 1}}), ArgumentError);
  EXPECT_THROW(DataLoader(numbers(9), {.batch_size = 1}).start_epoch(-1), ArgumentError);
}

TEST(DataLoader, ColourAugmentationRequiresBoundedPixels) {
  const auto data = [](float value) {
    return std::make_shared<TensorDataset>(Tensor::full({4, 1, 2, 2}, value), Tensor::zeros({4}, DType::i64));
  };
  const LoaderOptions options{.batch_size = 2, .augment = {.brightness = 0.2}};
  EXPECT_NO_THROW(DataLoader(data(0.7f), options));
  for (const float value : {-1.5f, 200.0f}) try {
      DataLoader loader(data(value), options);
      FAIL() << value;
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what())
                    .find("brightness changes pixels from black, 0, to white, 1, and sample 0"),
                std::string::npos);
    }
  EXPECT_NO_THROW(DataLoader(data(200), {.batch_size = 2, .augment = {.shift = 1, .noise = 0.1}}));
}

TEST(DataLoader, WhiteLevelFollowsTheScale) {
  const Hdf5Dataset digits(FAKEQUANT_SOURCE_DIR "/data/digits.h5");
  EXPECT_EQ(digits.white(), std::vector<float>{1});  // bytes up to 16, with a scale of 1 / 16
}

TEST(DataLoader, MixingRequiresLabelsPerSample) {
  const Tensor x = Tensor::zeros({4, 1, 2, 2});
  const LoaderOptions options{.batch_size = 2, .augment = {.mixup = 0.2}};
  EXPECT_THROW(DataLoader(std::make_shared<TensorDataset>(x), options), ArgumentError);
  const auto places = std::make_shared<TensorDataset>(x, Tensor::zeros({4, 2, 2}, DType::i64));
  EXPECT_THROW(DataLoader(places, options), ArgumentError);
  const auto numbers_of = std::make_shared<TensorDataset>(x, Tensor::zeros({4, 3}));
  EXPECT_EQ(DataLoader(numbers_of, options).next()->y.shape(), (Shape{2, 3}));
}

TEST(Split, PartsAreDisjointAndHaveTheFraction) {
  for (const auto& [size, fraction, expected] :
       {std::tuple{100, 0.2, 20u}, {7, 0.5, 4u}, {2, 0.01, 1u}, {10, 0.99, 9u}}) {
    const auto split = split_validation(size, fraction, 1);
    EXPECT_EQ(split.validation.size(), expected);
    auto all = split.train;
    all.insert(all.end(), split.validation.begin(), split.validation.end());
    EXPECT_EQ(sorted(all), first(size));
  }
  EXPECT_EQ(split_validation(100, 0.2, 1).train, split_validation(100, 0.2, 1).train);
  EXPECT_NE(split_validation(100, 0.2, 1).train, split_validation(100, 0.2, 2).train);
  EXPECT_THROW((void)split_validation(100, 0, 1), ArgumentError);
  EXPECT_THROW((void)split_validation(100, 1, 1), ArgumentError);
  EXPECT_THROW((void)split_validation(1, 0.5, 1), ArgumentError);
}

TEST(Subset, KeepsTheBlocksOfItsSource) {
  const Subset part(numbers(100, 10, 3), {1, 5, 9, 10, 35, 99});
  EXPECT_THAT(part.block_starts(), ElementsAre(0, 3, 4, 5));
  EXPECT_EQ(part.blocks_at_once(), 3);
  const std::vector<std::int64_t> rows{5, 0};
  EXPECT_THAT(part.read(rows).y.to_vector<std::int64_t>(), ElementsAre(99, 1));
  const std::vector<std::int64_t> outside{6};
  EXPECT_THROW((void)part.read(outside), ArgumentError);
  EXPECT_THROW(Subset(numbers(3), {}), ArgumentError);
  EXPECT_THROW(Subset(numbers(3), {1, 1}), ArgumentError);
  EXPECT_THROW(Subset(numbers(3), {1, 3}), ArgumentError);
}

TEST(TensorDataset, ReturnsRows) {
  const TensorDataset data(Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}),
                           Tensor::from<std::int64_t>({4, 0, 2}));
  EXPECT_EQ(data.classes(), 5);
  const std::vector<std::int64_t> rows{2, 0};
  const auto batch = data.read(rows);
  EXPECT_THAT(batch.x.to_vector<float>(), ElementsAre(5, 6, 1, 2));
  EXPECT_THAT(batch.y.to_vector<std::int64_t>(), ElementsAre(2, 4));
  EXPECT_FALSE(TensorDataset(Tensor::zeros({3, 2})).read(rows).y.defined());
  EXPECT_THROW(TensorDataset(Tensor::zeros({0, 2})), ArgumentError);
  EXPECT_THROW(TensorDataset(Tensor{}), ArgumentError);
  EXPECT_THROW(TensorDataset(Tensor::zeros({3, 2}, DType::u8)), ArgumentError);
  EXPECT_THROW(TensorDataset(Tensor::zeros({3, 2}), Tensor::zeros({2}, DType::i64)), ArgumentError);
  EXPECT_THROW(TensorDataset(Tensor::zeros({3, 2}), Tensor::full({3}, -1, DType::i64)), ArgumentError);
}

}  // namespace
}  // namespace fq::data_loader_test
