#include "fakequant/calib/detail/ranges.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "calib/random_tensors.h"
#include "cuda_device.h"
#include "fakequant/core/error.h"

namespace fq::cuda_ranges_test {
namespace {

class CudaRanges : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor to_cuda(const Tensor& x) { return x.to(Device::cuda()); }

TEST_F(CudaRanges, ComputeLargestMagnitudeOfEachRow) {
  for (const auto& [rows, length] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 5}, {1031, 1}, {3000, 16}, {517, 32}, {301, 7}, {40, 129}, {5, 2047}, {3, 2048}, {2, 2049}}) {
    const Tensor x = heavy_tailed({rows, length}, 4);
    const Tensor right = detail::amax(x, 0, "test"), got = detail::amax(to_cuda(x), 0, "test");
    EXPECT_TRUE(bitwise_equal(got, right)) << rows << " x " << length;
  }
  const Tensor x = heavy_tailed({67, 5}, 4);
  EXPECT_TRUE(bitwise_equal(detail::amax(to_cuda(x).slice(1, 67), 0, "test"),
                            detail::amax(x.slice(1, 67), 0, "test")));
}

TEST_F(CudaRanges, ReportNonFiniteValuesInRows) {
  Tensor x = heavy_tailed({9, 24}, 4);
  x.mutable_data<float>()[25] = -kInfinity;
  x.mutable_data<float>()[3 * 24 + 23] = std::nanf("");
  const auto got = detail::amax(to_cuda(x), 0, "test").to_vector<float>();
  EXPECT_EQ(got[1], kInfinity);
  EXPECT_TRUE(std::isnan(got[3]));
  EXPECT_TRUE(std::isfinite(got[0]) && std::isfinite(got[2]) && std::isfinite(got[4]));
}

TEST_F(CudaRanges, MatchTheHostAfterMoves) {
  for (const std::int64_t count : {1, 9, 7001}) {
    const Tensor batch = detail::used_ranges(heavy_tailed({count}, 5), 0, 0.7f);
    Tensor host = detail::used_ranges(heavy_tailed({count}, 6), 0, 1), moved = to_cuda(host);
    const auto waits = test::waits_so_far();
    const Tensor other = to_cuda(batch);
    for (const float momentum : {0.01f, 0.3f, 1.0f}) detail::move_ranges(moved, other, momentum);
    const Tensor used = detail::used_ranges(moved, 0x1p-23f, 1.1f);
    EXPECT_EQ(test::waits_so_far(), waits);
    for (const float momentum : {0.01f, 0.3f, 1.0f}) detail::move_ranges(host, batch, momentum);
    EXPECT_TRUE(bitwise_equal(moved, host)) << count;
    EXPECT_TRUE(bitwise_equal(used, detail::used_ranges(host, 0x1p-23f, 1.1f))) << count;
  }
  const Tensor learned = Tensor::from({-1.0f, 0.0f, 0x1p-24f, 0x1p-22f});
  EXPECT_EQ(detail::used_ranges(to_cuda(learned), 0x1p-23f, 2).to_vector<float>(),
            (std::vector<float>{0x1p-22f, 0x1p-22f, 0x1p-22f, 0x1p-21f}));
}

TEST_F(CudaRanges, GrowLikeOnTheHost) {
  for (const std::int64_t count : {1, 9, 7001}) {
    const Tensor batch = detail::used_ranges(heavy_tailed({count}, 5), 0, 0.7f);
    Tensor growing = Tensor::full({count}, 1), host = Tensor::zeros({count});
    for (std::int64_t i = 0; i < count; i += 3) growing.mutable_data<float>()[i] = 0;
    Tensor grown = to_cuda(host);
    const Tensor other = to_cuda(batch), marks = to_cuda(growing);
    const auto waits = test::waits_so_far();
    detail::grow_ranges(grown, other, marks);
    EXPECT_EQ(test::waits_so_far(), waits);
    detail::grow_ranges(host, batch, growing);
    EXPECT_TRUE(bitwise_equal(grown, host)) << count;
  }
}

/// Magnitudes next to the edges of a rule's bins, and values outside of all bins.
Tensor values_next_to_edges(const detail::BinRule& rule, int bins) {
  std::vector<float> v{0.0f,   -0.0f, kInfinity, std::nanf(""), rule.top, std::nextafter(rule.top, kInfinity),
                       1e-45f, 3e38f};
  for (int k = 0; k <= bins + 1; k += 1 + k / 200)
    for (int offset = -3; offset <= 3; ++offset) {
      const float edge = static_cast<float>(k + 1) * rule.divisor / rule.factor;
      v.push_back(std::bit_cast<float>(std::bit_cast<std::int32_t>(edge) + offset) *
                  (offset % 2 == 0 ? 1.0f : -1.0f));
    }
  while (v.size() < 9000) v.push_back(v[v.size() / 3]);
  return Tensor::from(v, {static_cast<std::int64_t>(v.size())});
}

TEST_F(CudaRanges, CountValuesNextToBinEdges) {
  for (const float divisor : {1.0f, 0.7123f, 5.4321f, 1e-25f, 3e-31f, 1e30f, 1e36f})
    for (const int bins : {1, 2, 129, 2048, 9001})
      for (const float factor : {static_cast<float>(bins), 0x1p-3f}) {
        for (const bool skip_zeros : {false, true}) {
          const float top = std::min(static_cast<float>(bins) / factor * divisor, 0x1.fffffep127f);
          const detail::BinRule rule{factor, divisor, top, skip_zeros};
          const Tensor x = values_next_to_edges(rule, bins);
          std::vector<std::int64_t> right(static_cast<std::size_t>(bins), 3), got = right;
          for (const int first : {0, 1, 8991}) {
            detail::count(x.slice(first, x.numel()), rule, right);
            detail::count(to_cuda(x).slice(first, x.numel()), rule, got);
          }
          EXPECT_EQ(got, right) << divisor << ", " << bins << " bins, " << factor;
        }
      }
}

TEST_F(CudaRanges, RejectNonFiniteBatchesWithoutChange) {
  Tensor amax = to_cuda(Tensor::from({1.0f, 2.0f, 3.0f}));
  const Tensor batch = to_cuda(Tensor::from({5.0f, kInfinity, std::nanf("")}));
  detail::move_ranges(amax, batch, 0.5f);
  EXPECT_EQ(amax.to_vector<float>(), (std::vector<float>{3.0f, 2.0f, 3.0f}));
  for (const auto& [value, what] : {std::pair{kInfinity, "an infinity"}, {std::nanf(""), "a NaN"}}) {
    Tensor x = Tensor::zeros({2000});
    x.mutable_data<float>()[1999] = value;
    std::string right, got;
    try {
      detail::check_finite(x, "test", "fc1.input_quantizer");
    } catch (const NumericError& error) {
      right = error.what();
    }
    detail::check_finite(to_cuda(x), "test", "fc1.input_quantizer");
    try {
      synchronize(Device::cuda());
    } catch (const NumericError& error) {
      got = error.what();
    }
    EXPECT_NE(right.find(what), std::string::npos);
    EXPECT_EQ(got, right);
  }
  synchronize(Device::cuda());
}

}  // namespace
}  // namespace fq::cuda_ranges_test
