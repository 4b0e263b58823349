#include <gtest/gtest.h>

#include "fakequant/calib/histogram_calibrator.h"
#include "fakequant/calib/max_calibrator.h"
#include "fakequant/core/error.h"
#include "golden.h"

namespace fq {
namespace {

using golden::Case;

Axes axis_of(const Case& c) {
  std::vector<int> axes;
  if (c.has("axis"))
    for (const double axis : c.numbers.at("axis")) axes.push_back(static_cast<int>(axis));
  return axes;
}

void collect(Calibrator& calibrator, const Case& c) {
  for (const auto& [name, tensor] : c.tensors)
    if (name.starts_with("in/batch_")) calibrator.collect(tensor);
}

TEST(Golden, MaxCalibrator) {
  FQ_GOLDEN_OR_SKIP();
  const int cases = golden::for_each("calibrators.h5", "max_calibrator", [](const Case& c) {
    MaxCalibrator calibrator(axis_of(c));
    if (!c.text("error").empty()) {
      EXPECT_THROW(collect(calibrator, c), Error) << c.name;
      return;
    }
    collect(calibrator, c);
    EXPECT_TRUE(golden::same_bits(calibrator.compute_amax(), c.tensor("out/amax"))) << c.name;
  });
  EXPECT_GE(cases, 19);
}

TEST(Golden, HistogramCollect) {
  FQ_GOLDEN_OR_SKIP();
  int compared = 0;
  golden::for_each("calibrators.h5", "histogram_collect", [&](const Case& c) {
    CalibratorOptions options{.axis = axis_of(c),
                              .num_bins = static_cast<int>(c.number("num_bins", 2048)),
                              .skip_zeros = c.number("skip_zeros", 0) != 0};
    if (!c.text("error").empty()) {
      EXPECT_THROW(HistogramCalibrator("percentile", options), ArgumentError);
      return;
    }
    if (c.number("torch_hist", 1) == 0) return;  // numpy's grid is not offered
    HistogramCalibrator calibrator("percentile", options);
    collect(calibrator, c);
    const Histogram& h = calibrator.histogram();
    EXPECT_EQ(h.counts, c.tensor("out/hist").to_vector<std::int64_t>()) << c.name;
    const auto edges = c.tensor("out/bin_edges").to_vector<float>();
    ASSERT_EQ(h.edges.size(), edges.size()) << c.name;
    for (std::size_t i = 0; i < edges.size(); ++i)
      ASSERT_NEAR(h.edges[i], edges[i], 3e-7 * static_cast<double>(edges[i]))
          << c.name;  // stored with rel:3e-7
    ++compared;
  });
  EXPECT_GE(compared, 10);
}

TEST(Golden, HistogramComputeAmax) {
  FQ_GOLDEN_OR_SKIP();
  const int cases = golden::for_each("calibrators.h5", "histogram_compute_amax", [](const Case& c) {
    const auto bits = c.numbers.at("num_bits");
    const NumBits num_bits = bits.size() == 1 ? NumBits(static_cast<int>(bits[0]))
                                              : NumBits(static_cast<int>(bits[0]), static_cast<int>(bits[1]));
    const Histogram h{c.tensor("in/hist").to_vector<std::int64_t>(),
                      c.tensor("in/bin_edges").to_vector<float>()};
    const int stride = static_cast<int>(c.number("stride", 1)),
              start = static_cast<int>(c.number("start_bin", 128));
    const bool is_unsigned = c.number("unsigned", 0) != 0;
    const std::string method = c.text("method");
    if (!c.text("error").empty()) {
      if (method == "percentile")
        EXPECT_THROW((void)amax_by_percentile(h, c.number("percentile", 0)), ArgumentError);
      else
        EXPECT_THROW(HistogramCalibrator{method}, ArgumentError);
      return;
    }
    const float amax = method == "percentile" ? amax_by_percentile(h, c.number("percentile", 99.99))
                       : method == "entropy"  ? amax_by_entropy(h, num_bits, is_unsigned, stride, start)
                                              : amax_by_mse(h, num_bits, is_unsigned, stride, start);
    EXPECT_EQ(amax, static_cast<float>(c.tensor("out/amax").item())) << c.name << " " << method;
  });
  EXPECT_GE(cases, 112);
}

}  // namespace
}  // namespace fq
