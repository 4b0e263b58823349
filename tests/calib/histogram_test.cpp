#include "fakequant/calib/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::histogram_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Tensor normal(std::int64_t count, float scale, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> v(static_cast<std::size_t>(count));
  for (float& e : v) {  // the sum of four uniforms: the same on every library
    e = 0;
    for (int i = 0; i < 4; ++i) e += static_cast<float>(random() % 65536) - 32767.5f;
    e *= scale / 32768.0f;
  }
  return Tensor::from(v, {count});
}

/// The bin of each value by the definition, one by one.
std::vector<std::int64_t> slow_counts(const Tensor& x, const Histogram& h) {
  std::vector<std::int64_t> counts(h.counts.size());
  for (const float e : x.to_vector<float>()) {
    const float v = std::fabs(e), bins = static_cast<float>(counts.size());
    if (v > h.edges.back()) continue;
    const float position = v * bins / h.edges.back();
    ++counts[std::min(static_cast<std::size_t>(position), counts.size() - 1)];
  }
  return counts;
}

TEST(Histogram, CountsMatchTheDefinition) {
  for (const std::int64_t count : {1, 63, 64, 65, 1000, 400001}) {
    HistogramCalibrator calibrator;
    const Tensor x = normal(count, 1.5f, 1);
    calibrator.collect(x);
    EXPECT_EQ(calibrator.histogram().counts, slow_counts(x, calibrator.histogram()));
    EXPECT_EQ(calibrator.histogram().total(), count);
    EXPECT_EQ(calibrator.histogram().edges.size(), 2049u);
  }
}

TEST(Histogram, GrowsByBinsOfTheSameWidth) {
  HistogramCalibrator calibrator("percentile", {.num_bins = 8});
  calibrator.collect(Tensor::from({1.0f, -2.0f, 0.1f}));
  calibrator.collect(Tensor::from({0.3f, 3.1f}));
  const Histogram& h = calibrator.histogram();
  EXPECT_EQ(h.counts, (std::vector<std::int64_t>{1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(h.edges.back(), 3.25f);
}

TEST(Histogram, KeepsZerosSeenBeforeTheGridExists) {
  HistogramCalibrator all("percentile", {.num_bins = 4}),
      skipping("percentile", {.num_bins = 4, .skip_zeros = true});
  for (HistogramCalibrator* c : {&all, &skipping}) {
    c->collect(Tensor::zeros({10}));
    EXPECT_EQ(c->compute_amax().item(), 0.0);
    c->collect(Tensor::from({0.0f, 4.0f}));
  }
  EXPECT_EQ(all.histogram().counts, (std::vector<std::int64_t>{11, 0, 0, 1}));
  EXPECT_EQ(skipping.histogram().counts, (std::vector<std::int64_t>{0, 0, 0, 1}));
}

TEST(Histogram, MemoryStaysBounded) {
  HistogramCalibrator calibrator;
  std::int64_t values = 0;
  for (const float largest : {1e-30f, 3e-30f, 1e-3f, 1.0f, 3.0e38f}) {
    calibrator.collect(Tensor::from({largest, largest / 3}));
    values += 2;
    EXPECT_LE(calibrator.histogram().counts.size(), static_cast<std::size_t>(Histogram::max_bins));
    EXPECT_EQ(calibrator.histogram().total(), values);
    EXPECT_GE(calibrator.histogram().edges.back(), largest);
  }
}

TEST(Histogram, PercentileIsTheLeftEdgeOfItsBin) {
  Histogram h{{50, 25, 15, 10}, {0, 1, 2, 3, 4}};
  EXPECT_EQ(amax_by_percentile(h, 0), 0.0f);
  EXPECT_EQ(amax_by_percentile(h, 50), 0.0f);
  EXPECT_EQ(amax_by_percentile(h, 51), 1.0f);
  EXPECT_EQ(amax_by_percentile(h, 90), 2.0f);
  EXPECT_EQ(amax_by_percentile(h, 100), 3.0f);
}

TEST(Histogram, EntropyMatchesItsDefinition) {
  HistogramCalibrator calibrator("entropy", {.num_bins = 300});
  calibrator.collect(normal(20000, 1.0f, 7));
  Histogram h = calibrator.histogram();
  std::vector<double> fast;
  (void)amax_by_entropy(h, 4, false, 7, 16, &fast);
  h.counts[0] = h.counts[1];
  std::size_t candidate = 0;
  for (std::size_t i = 16; i <= 300; i += 7, ++candidate) {
    std::vector<double> p(h.counts.begin(), h.counts.begin() + static_cast<std::ptrdiff_t>(i)), q(i);
    p.back() += static_cast<double>(
        std::accumulate(h.counts.begin() + static_cast<std::ptrdiff_t>(i), h.counts.end(), std::int64_t{0}));
    for (int level = 0; level < 8; ++level) {
      double sum = 0, filled = 0;
      const auto is_in_bin = [&](std::size_t j) { return static_cast<std::size_t>(level) == j * 8 / i; };
      for (std::size_t j = 0; j < i; ++j)
        if (is_in_bin(j) && h.counts[j] > 0) {
          sum += static_cast<double>(h.counts[j]);
          filled += 1;
        }
      for (std::size_t j = 0; j < i; ++j)
        if (is_in_bin(j) && h.counts[j] > 0) q[j] = sum / filled;
    }
    const double ps = std::accumulate(p.begin(), p.end(), 0.0), qs = std::accumulate(q.begin(), q.end(), 0.0);
    double kl = 0;
    for (std::size_t j = 0; j < i; ++j)
      if (p[j] > 0) kl += p[j] / ps * std::log(p[j] / ps / (q[j] / qs));
    if (std::isinf(kl))
      EXPECT_EQ(fast[candidate], kl);
    else
      EXPECT_NEAR(fast[candidate], kl, 1e-11) << i;  // two orders of summation of 300 terms
  }
  EXPECT_EQ(candidate, fast.size());
}

/// Answers of ModelOpt 0.47's _compute_amax_entropy (8 bits, signed) for bins of width 1/64 whose first ones
/// are empty and whose counts are otherwise k * k * 7919 % 97 + 1.
TEST(Histogram, EntropyOfEmptyCutsMatchesModelOptOnRequest) {
  struct {
    int bins, empty, stride;
    float modelopt;
  } const cases[] = {{256, 140, 1, 2.1875f},
                     {256, 140, 5, 2.15625f},
                     {512, 300, 7, 4.625f},
                     {256, 253, 1, 3.953125f},
                     {256, 60, 1, 3.96875f}};
  for (const auto& c : cases) {
    Histogram h;
    for (std::int64_t k = 0; k < c.bins; ++k) h.counts.push_back(k < c.empty ? 0 : k * k * 7919 % 97 + 1);
    for (int k = 0; k <= c.bins; ++k) h.edges.push_back(static_cast<float>(k) / 64);
    EXPECT_EQ(amax_by_entropy(h, 8, false, c.stride, 128, nullptr, true), c.modelopt) << c.empty;
    EXPECT_GT(amax_by_entropy(h, 8, false, c.stride, 128), static_cast<float>(c.empty) / 64) << c.empty;
  }
}

TEST(Histogram, EntropyStopsEarlyWithoutChangingTheChoice) {
  std::mt19937 engine(5);
  for (const std::size_t bins : {2, 9, 130, 2048, 5000})
    for (const int bits : bins <= 130 ? std::vector{2, 4, 5, 8, 16} : std::vector{2, 4, 8})
      for (const int shape : {0, 1, 2, 3}) {  // with gaps; even; falling; one bin
        Histogram h;
        for (std::size_t i = 0; i <= bins; ++i) h.edges.push_back(static_cast<float>(i));
        for (std::size_t i = 0; i < bins; ++i)
          h.counts.push_back(shape == 0   ? static_cast<std::int64_t>(engine() % 3)
                             : shape == 1 ? 7
                             : shape == 2 ? static_cast<std::int64_t>(1e6 / static_cast<double>(i + 1))
                                          : i == bins / 2);
        const int start = bins < 128 ? 1 : 128;
        for (const bool is_unsigned : {false, true}) {
          std::vector<double> all;
          const float chosen = amax_by_entropy(h, bits, is_unsigned, 1, start, &all);
          EXPECT_EQ(amax_by_entropy(h, bits, is_unsigned, 1, start), chosen)
              << bins << ' ' << bits << ' ' << shape;
          if (all.empty()) continue;  // no count: nothing to search
          EXPECT_EQ(*std::ranges::min_element(all),
                    all[static_cast<std::size_t>(chosen) - static_cast<std::size_t>(start)]);
        }
      }
}

TEST(Histogram, MseFindsTheOutlier) {
  HistogramCalibrator calibrator("mse", {.num_bins = 256});
  calibrator.collect(normal(50000, 0.5f, 3));
  calibrator.collect(Tensor::from({40.0f}));
  const double four_bits = calibrator.compute_amax({.num_bits = 4, .start_bin = 64}).item();
  EXPECT_LT(four_bits, 2.0);  // clipping one value costs less than coarse steps for all
  const double sixteen = calibrator.compute_amax({.num_bits = 16}).item();
  EXPECT_GT(sixteen, 39.0);
  EXPECT_GT(calibrator.compute_amax({.num_bits = {4, 3}}).item(), 2.0);
}

/// Counts over many orders of magnitude, with gaps and a thin tail.
Histogram random_histogram(std::mt19937& random) {
  Histogram h;
  const std::size_t bins = 200 + random() % 900;
  const float width =
      std::ldexp(1.0f + static_cast<float>(random() % 1000) / 1000, static_cast<int>(random() % 9) - 12);
  const auto scale = static_cast<double>(20 + random() % bins);
  for (std::size_t k = 0; k < bins; ++k) {
    const double height = 1e6 * std::exp(-static_cast<double>(k) / scale);
    h.counts.push_back(random() % 7 == 0
                           ? 0
                           : static_cast<std::int64_t>(height * static_cast<double>(random() % 100) / 100));
    h.edges.push_back(width * static_cast<float>(k));
  }
  h.edges.push_back(width * static_cast<float>(bins));
  return h;
}

TEST(Histogram, MseStopsEarlyWithoutChangingTheChoice) {
  std::mt19937 random(5);
  const std::vector<NumBits> formats{2, 4, 8, 12, 16, {4, 3}};
  for (int trial = 0; trial < 12; ++trial) {
    const Histogram h = random_histogram(random);
    for (const NumBits& bits : formats) {
      const int stride = 1 + static_cast<int>(random() % 3), start = static_cast<int>(random() % 100);
      std::vector<double> errors;
      const float all = amax_by_mse(h, bits, trial % 2 == 0, stride, start, &errors);
      EXPECT_EQ(amax_by_mse(h, bits, trial % 2 == 0, stride, start), all) << trial << ' ' << to_string(bits);
      EXPECT_EQ(
          errors.size(),
          (h.counts.size() - static_cast<std::size_t>(start + 1)) / static_cast<std::size_t>(stride) + 1);
    }
  }
}

TEST(Histogram, NumpyGridIsSavedAsDoubleAfterGrowth) {
  const CalibratorOptions options{.num_bins = 7, .grid = HistogramGrid::numpy};
  HistogramCalibrator a("percentile", options), b("percentile", options);
  a.collect(Tensor::from({0.1f, 0.8f}));
  EXPECT_TRUE(a.histogram().wide_edges.empty());
  for (const float largest : {0.9f, 1.7f}) a.collect(Tensor::from({0.3f, largest}));
  const Histogram& grown = a.histogram();
  ASSERT_EQ(grown.wide_edges.size(), grown.edges.size());
  EXPECT_NE(grown.wide_edges, std::vector<double>(grown.edges.begin(), grown.edges.end()));
  b.load_state(a.state_dict());
  for (HistogramCalibrator* each : {&a, &b}) each->collect(Tensor::from({2.9f, 5.0f}));
  EXPECT_EQ(a.histogram().wide_edges, b.histogram().wide_edges);
  EXPECT_EQ(a.histogram().counts, b.histogram().counts);
}

TEST(Histogram, NumpyGridBeginsAtTheMinimumAndAppendsEdges) {
  Histogram h;
  h.collect_numpy(Tensor::from({-1.0f, 2.0f, 5.0f, 0.0f}), 4, true);
  EXPECT_EQ(h.edges, (std::vector<float>{1, 2, 3, 4, 5}));
  EXPECT_EQ(h.counts, (std::vector<std::int64_t>{1, 1, 0, 1}));  // the last bin includes its upper edge
  h.collect_numpy(Tensor::from({0.5f, 2.5f, 6.5f}), 4, true);    // 0.5 lies below the grid
  EXPECT_EQ(h.edges, (std::vector<float>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(h.counts, (std::vector<std::int64_t>{1, 2, 0, 1, 0, 1}));
  EXPECT_THROW(h.collect_numpy(Tensor::from({1e9f}), 4, true), ArgumentError);
  Histogram single, none;
  none.collect_numpy(Tensor::zeros({3}), 2, true);
  EXPECT_EQ(none.edges, (std::vector<float>{0, 0.5, 1}));
  EXPECT_EQ(none.counts, (std::vector<std::int64_t>{0, 0}));
  Histogram narrow;
  EXPECT_THROW(narrow.collect_numpy(Tensor::from({1.0f, 1.00001f}), 2048, false), ArgumentError);
  EXPECT_TRUE(narrow.edges.empty());
  single.collect_numpy(Tensor::from({3.0f, 3.0f}), 2, false);
  EXPECT_EQ(single.edges, (std::vector<float>{2.5, 3, 3.5}));
  EXPECT_EQ(single.counts, (std::vector<std::int64_t>{0, 2}));
}

TEST(Histogram, RejectsInvalidCounts) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  for (const std::vector<std::int64_t>& counts : {std::vector<std::int64_t>{most / 2, most / 2}, {-1, 2}}) {
    const Histogram h{counts, {0, 1, 2}};
    EXPECT_THROW((void)amax_by_percentile(h, 99), ArgumentError);
    EXPECT_THROW((void)amax_by_entropy(h, 8, false, 1, 1), ArgumentError);
    EXPECT_THROW((void)amax_by_mse(h, 8, false, 1, 1), ArgumentError);
  }
}

TEST(HistogramCalibrator, RejectsInvalidInput) {
  HistogramCalibrator calibrator;
  const auto compute = [&](AmaxOptions o) { return [&calibrator, o] { (void)calibrator.compute_amax(o); }; };
  EXPECT_THAT(compute({}), ThrowsMessage<ArgumentError>(HasSubstr("calibrate with at least one batch")));
  EXPECT_THROW(calibrator.collect(Tensor::from({1.0f, std::numeric_limits<float>::quiet_NaN()})),
               NumericError);
  EXPECT_TRUE(calibrator.empty());
  calibrator.collect(normal(100, 1.0f, 1));
  for (const double p : {-0.1, 100.5, std::nan("")})
    EXPECT_THAT(compute({.percentile = p}), ThrowsMessage<ArgumentError>(HasSubstr("use 0 to 100")));
  EXPECT_THAT(compute({.method = "percentil"}), ThrowsMessage<ArgumentError>(HasSubstr("percentile")));
  EXPECT_THAT(compute({.method = "entropy", .stride = 0}), ThrowsMessage<ArgumentError>(HasSubstr("stride")));
  EXPECT_THAT(compute({.method = "mse", .start_bin = 2048}),
              ThrowsMessage<ArgumentError>(HasSubstr("0 to 2047")));
  EXPECT_THAT(compute({.method = "entropy", .num_bits = {4, 3}}),
              ThrowsMessage<ArgumentError>(HasSubstr("use percentile or mse")));
  EXPECT_THAT([] { HistogramCalibrator("percentile", {.axis = 0}); },
              ThrowsMessage<ArgumentError>(HasSubstr("histograms are per tensor")));
  EXPECT_THROW(HistogramCalibrator("mse", {.num_bins = 1}), ArgumentError);
  EXPECT_THROW(HistogramCalibrator("kl"), ArgumentError);
}

}  // namespace
}  // namespace fq::histogram_test
