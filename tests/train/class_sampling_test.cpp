#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/data/loader.h"

namespace fq::class_sampling_test {
namespace {

/// 100 samples, 70 of class 0, 25 of 1, 5 of 2; sample i is the number i.
std::shared_ptr<TensorDataset> uneven() {
  std::vector<float> x(100);
  std::vector<std::int64_t> y(100);
  for (std::size_t i = 0; i < 100; ++i) {
    x[i] = static_cast<float>(i);
    y[i] = i % 20 == 0 ? 2 : i % 4 == 1 ? 1 : 0;
  }
  return std::make_shared<TensorDataset>(Tensor::from(x, {100, 1}), Tensor::from(y, {100}));
}

struct Epoch {
  std::vector<float> samples;
  std::map<std::int64_t, int> classes;
};

Epoch read_epoch(DataLoader& loader) {
  Epoch all;
  while (const auto batch = loader.next()) {
    const auto x = batch->x.to_vector<float>();
    all.samples.insert(all.samples.end(), x.begin(), x.end());
    for (const auto label : batch->y.to_vector<std::int64_t>()) ++all.classes[label];
  }
  return all;
}

TEST(ClassSampling, DrawsClassesEquallyOften) {
  DataLoader loader(uneven(), {.batch_size = 8, .seed = 3, .balanced = true});
  std::map<float, int> times;
  for (int epoch = 0; epoch < 6; ++epoch) {
    const Epoch all = read_epoch(loader);
    EXPECT_EQ(all.samples.size(), 100u);
    for (std::int64_t c = 0; c < 3; ++c) EXPECT_TRUE(all.classes.at(c) == 33 || all.classes.at(c) == 34);
    std::map<float, int> drawn;
    for (const float sample : all.samples) ++drawn[sample], ++times[sample];
    for (int i = 0; i < 100; ++i) {
      const int count = drawn.contains(float(i)) ? drawn.at(float(i)) : 0;
      if (i % 20 == 0)
        EXPECT_TRUE(count == 6 || count == 7) << i;
      else if (i % 4 == 1)
        EXPECT_TRUE(count == 1 || count == 2) << i;
      else
        EXPECT_LE(count, 1) << i;
    }
  }
  EXPECT_GT(times.size(), 95u);  // other samples of the large class each epoch
}

TEST(ClassSampling, WeightsAreProportions) {
  DataLoader loader(uneven(), {.batch_size = 10, .class_weights = {1, 0, 3}});
  const Epoch all = read_epoch(loader);
  EXPECT_EQ(all.classes.at(0), 25);
  EXPECT_EQ(all.classes.at(2), 75);
  EXPECT_FALSE(all.classes.contains(1));
}

TEST(ClassSampling, DependsOnSeedAndEpochOnly) {
  const LoaderOptions options{.batch_size = 7, .seed = 5, .balanced = true};
  DataLoader loader(uneven(), options);
  const auto first = read_epoch(loader).samples, second = read_epoch(loader).samples;
  EXPECT_NE(first, second);
  auto direct = options;
  direct.prefetch = 0;
  DataLoader other(uneven(), direct);
  other.start_epoch(1);
  std::vector<float> begun;
  for (int i = 0; i < 3; ++i)
    for (const float v : other.next()->x.to_vector<float>()) begun.push_back(v);
  DataLoader resumed(uneven(), options);
  resumed.load_state_dict(other.state_dict());
  for (const float v : read_epoch(resumed).samples) begun.push_back(v);
  EXPECT_EQ(begun, second);
}

TEST(ClassSampling, AugmentsRepeatedSamplesDifferently) {
  DataLoader loader(uneven(),
                    {.batch_size = 100, .seed = 5, .augment = {.noise = 0.1}, .class_weights = {0, 0, 1}});
  auto x = loader.next()->x.to_vector<float>();
  std::ranges::sort(x);
  EXPECT_EQ(std::ranges::adjacent_find(x), x.end());
}

/// Blocks of ten samples; counts how often another block than the last is read.
class Blocks : public Subset {
 public:
  Blocks() : Subset(uneven(), every()) {}
  static std::vector<std::int64_t> every() {
    std::vector<std::int64_t> rows(100);
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    return rows;
  }
  std::vector<std::int64_t> block_starts() const override { return {0, 10, 20, 30, 40, 50, 60, 70, 80, 90}; }
  Batch read(std::span<const std::int64_t> rows) const override {
    for (const auto row : rows)
      if (row / 10 != last_) ++changes_, last_ = row / 10;
    return Subset::read(rows);
  }
  mutable std::int64_t last_ = -1, changes_ = 0;
};

TEST(ClassSampling, ReadsEveryBlockOncePerEpoch) {
  const auto data = std::make_shared<Blocks>();
  DataLoader loader(data, {.batch_size = 10, .prefetch = 0, .balanced = true});
  EXPECT_EQ(read_epoch(loader).samples.size(), 100u);
  EXPECT_EQ(data->changes_, 10);
}

TEST(ClassSampling, RejectsDataWithoutClasses) {
  const auto error_text = [](const std::shared_ptr<const Dataset>& data,
                             LoaderOptions options) -> std::string {
    try {
      options.batch_size = 1;
      DataLoader loader(data, options);
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  const Tensor x = Tensor::zeros({4, 2});
  const auto numbers = std::make_shared<TensorDataset>(x, Tensor::zeros({4}));
  const auto several = std::make_shared<TensorDataset>(x, Tensor::zeros({4, 3}, DType::i64));
  EXPECT_NE(error_text(std::make_shared<TensorDataset>(x), {.balanced = true}).find("no labels"),
            std::string::npos);
  EXPECT_NE(error_text(numbers, {.balanced = true}).find("needs one class for each sample"),
            std::string::npos);
  EXPECT_NE(error_text(several, {.class_weights = {1, 1, 1}}).find("needs one class"), std::string::npos);
  EXPECT_NE(error_text(uneven(), {.class_weights = {1, 1}}).find("2 class_weights, and 3 classes"),
            std::string::npos);
  EXPECT_NE(error_text(uneven(), {.class_weights = {0, 0, 0}}).find("all class_weights are 0"),
            std::string::npos);
  EXPECT_NE(error_text(uneven(), {.class_weights = {1, -1, 0}}).find("for class 1: use 0 or more"),
            std::string::npos);
  EXPECT_NE(error_text(uneven(), {.shuffle = false, .balanced = true}).find("need shuffle"),
            std::string::npos);
  EXPECT_NE(error_text(uneven(), {.class_weights = {1, 1, 1}, .balanced = true}).find("use one"),
            std::string::npos);
  const auto gap =
      std::make_shared<TensorDataset>(x, Tensor::from(std::vector<std::int64_t>{0, 2, 2, 0}, {4}));
  EXPECT_NE(error_text(gap, {.class_weights = {1, 1, 1}}).find("class 1, which has no samples"),
            std::string::npos);
  EXPECT_EQ(error_text(gap, {.balanced = true}), "");
}

}  // namespace
}  // namespace fq::class_sampling_test
