#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "cuda_device.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/random.h"
#include "fakequant/core/tape.h"

namespace fq::cuda_elementwise_test {
namespace {

using test::random_values;

class CudaElementwise : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

Tensor to_cuda(const Tensor& x) { return x.to(Device::cuda()); }

/// Sizes that are no multiple of a group, a block or a grid, and above one sweep of the simulated device.
const Shape kOdd{7, 3, 41, 17};

TEST_F(CudaElementwise, BroadcastsInEveryWay) {
  const std::vector<std::pair<Shape, Shape>> pairs{{{20011}, {20011}},
                                                   {{20011}, {1}},
                                                   {{}, {20011}},
                                                   {{131, 77}, {77}},
                                                   {{131, 77}, {131, 1}},
                                                   {kOdd, {3, 1, 1}},
                                                   {kOdd, {7, 1, 41, 1}},
                                                   {{7, 1, 41, 1}, {1, 3, 1, 17}},
                                                   {{2, 1, 3, 1, 5, 1, 7}, {1, 3, 1, 5, 1, 7, 1}}};
  for (const auto& [left, right] : pairs)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
        const auto laid = [&](const Tensor& x) { return x.rank() == 4 ? x.to(layout) : x; };
        const Tensor a = laid(random_values(left, 1).to(dtype)), b = laid(random_values(right, 2).to(dtype));
        const Tensor sum = ops::sub(to_cuda(a), to_cuda(b)).tensor();
        EXPECT_TRUE(bitwise_equal(sum.to(Device::cpu()), ops::sub(a, b).tensor()))
            << to_string(left) << to_string(right) << name(layout);
      }
}

TEST_F(CudaElementwise, HandlesUnalignedRows) {
  const Tensor x = random_values({5, 4001}, 3).to(DType::f32), y = to_cuda(x);
  EXPECT_TRUE(
      bitwise_equal(ops::relu(y.slice(1, 4)).tensor().to(Device::cpu()), ops::relu(x.slice(1, 4)).tensor()));
  EXPECT_TRUE(bitwise_equal(ops::add(y.slice(0, 3), y.slice(1, 4)).tensor().to(Device::cpu()),
                            ops::add(x.slice(0, 3), x.slice(1, 4)).tensor()));
}

/// Sums of f64 parts in another order: f64 is off by some 1e-16 of the sum of magnitudes, f32 by one
/// rounding.
TEST_F(CudaElementwise, SumsGradientsOverBroadcastAxes) {
  const std::vector<std::pair<Shape, Shape>> pairs{
      {kOdd, {3, 1, 1}},    {kOdd, {}},       {kOdd, {17}},          {kOdd, {7, 1, 1, 1}},
      {kOdd, {7, 3, 1, 1}}, {kOdd, {41, 17}}, {kOdd, {7, 1, 41, 1}}, {{9001, 5}, {5}},
      {{5, 9001}, {5, 1}},  {{0, 4}, {4}},    {{0, 4}, {0, 1}},      {{4, 0}, {4, 1}}};
  for (const auto& [from, to] : pairs)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
        const auto gradient = [&, &shape = from, &small = to](Device device) {
          const Tensor x = random_values(shape, 5).to(dtype);
          const Variable big((shape.size() == 4 ? x.to(layout) : x).to(device), true);
          const Variable added(random_values(small, 6).to(dtype).to(device), true);
          const Variable y = ops::multiply(big, added);
          y.backward(Tensor::full(y.shape(), 1.0, dtype, device));
          return added.grad().to(DType::f64).to_vector<double>();
        };
        const auto found = gradient(Device::cuda()), expected = gradient(Device::cpu());
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_NEAR(found[i], expected[i], dtype == DType::f64 ? 1e-10 : 1e-4)
              << to_string(from) << to_string(to) << name(layout);
      }
}

TEST_F(CudaElementwise, PermutesAxes) {
  const Tensor x = random_values({3, 5, 7, 11, 13}, 7).to(DType::f32);
  for (const std::vector<int>& axes :
       {std::vector<int>{0, 2, 1, 3, 4}, {4, 3, 2, 1, 0}, {0, 1, 2, 4, 3}, {2, 0, 1, 4, 3}, {0, 1, 2, 3, 4}})
    EXPECT_TRUE(bitwise_equal(ops::transpose(to_cuda(x), axes).tensor().to(Device::cpu()),
                              ops::transpose(x, axes).tensor()));
  const Tensor matrices = random_values({3, 70, 131}, 8);
  for (const DType dtype : {DType::i8, DType::f16, DType::f32, DType::f64}) {
    const Tensor given = matrices.to(dtype);
    for (const std::vector<int>& axes : {std::vector<int>{0, 2, 1}, {2, 0, 1}, {1, 2, 0}, {2, 1, 0}}) {
      const Shape shape{given.dim(axes[0]), given.dim(axes[1]), given.dim(axes[2])};
      Tensor y = Tensor::empty(shape, dtype), far = Tensor::empty(shape, dtype, Device::cuda());
      cpu::permute(given, axes, y);
      cuda::permute(to_cuda(given), axes, far);
      EXPECT_TRUE(bitwise_equal(far.to(Device::cpu()), y)) << name(dtype);
    }
  }
  const Tensor last = random_values(kOdd, 8).to(Layout::channels_last);
  EXPECT_TRUE(bitwise_equal(ops::transpose(to_cuda(last), {3, 0, 2, 1}).tensor().to(Device::cpu()),
                            ops::transpose(last, {3, 0, 2, 1}).tensor()));
}

TEST_F(CudaElementwise, DropoutMatchesTheCpu) {
  for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
    const Tensor x = random_values(kOdd, 9).to(DType::f32).to(layout);
    const auto dropped = [&](const Tensor& from) {
      const RandomScope scope(11, 5);
      static_cast<void>(ops::dropout(from, 0.5, true));
      return ops::dropout(from, 0.3, true).tensor().to(Device::cpu());
    };
    EXPECT_TRUE(bitwise_equal(dropped(to_cuda(x)), dropped(x)));
  }
}

TEST_F(CudaElementwise, RandomFillsMatchTheCpu) {
  Tensor host = Tensor::empty({4001}), far = Tensor::empty({4001}, DType::f32, Device::cuda());
  fill_uniform(host, -1, 1, 3);
  fill_uniform(far, -1, 1, 3);
  EXPECT_TRUE(bitwise_equal(far.to(Device::cpu()), host));
}

TEST_F(CudaElementwise, EmbeddingMatchesTheCpu) {
  constexpr std::int64_t rows = 211, uses = 4003;
  for (const std::int64_t width : {1, 8, 19}) {
    std::vector<std::int64_t> ids(uses);
    for (std::size_t i = 0; i < ids.size(); ++i)  // one row very often, some once, some never
      ids[i] = i % 3 == 0 ? 7 : static_cast<std::int64_t>(i * i % 97 + (i % 5 == 0 ? 100 : 0));
    const auto run = [&](Device device) {
      const Variable table(random_values({rows, width}, 10).to(DType::f32).to(device), true);
      const Variable y = ops::embedding(Tensor::from(ids, {uses}).to(device), table);
      y.backward(random_values({uses, width}, 11).to(DType::f32).to(device));
      return std::pair(y.tensor().to(Device::cpu()), table.grad().to(Device::cpu()));
    };
    const auto found = run(Device::cuda()), expected = run(Device::cpu());
    EXPECT_TRUE(bitwise_equal(found.first, expected.first)) << width;
    EXPECT_TRUE(bitwise_equal(found.second, expected.second)) << width;
  }
}

TEST_F(CudaElementwise, ReportsIdsOutOfRangeOnRead) {
  const Tensor table = to_cuda(random_values({5, 2}, 12).to(DType::f32));
  const auto message = [&](const Tensor& ids) -> std::string {
    const Tensor y = ops::embedding(to_cuda(ids), table).tensor();
    try {
      static_cast<void>(y.to(Device::cpu()));
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(Tensor::from<std::int64_t>({0, 5})), "[embedding] id: a value is not in 0 to 4");
  EXPECT_EQ(message(Tensor::from<std::int64_t>({-1, 4})), "[embedding] id: a value is not in 0 to 4");
  EXPECT_EQ(message(Tensor::from<float>({0.5f, 4.0f})), "[embedding] id: a value is not a whole number");
  EXPECT_EQ(message(Tensor::from<float>({3.0f, 4.0f})), "");
}

TEST_F(CudaElementwise, PredictionsAreTheLargestScores) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t classes : {1, 7, 10, 300, 5000}) {
      Tensor scores = random_values({37, classes}, 15).to(DType::f32);
      auto* v = scores.mutable_data<float>();
      for (std::int64_t i = 0; i < scores.numel(); ++i) v[i] = std::round(v[i] * 4);  // ties
      v[3 * classes + classes / 2] = std::numeric_limits<float>::quiet_NaN();
      for (std::int64_t i = 0; i < classes; ++i) v[4 * classes + i] = -std::numeric_limits<float>::infinity();
      const Tensor own = scores.to(dtype);
      const auto run_predictions = [&](Device device) {
        Tensor out = Tensor::empty({37}, DType::i64, device);
        detail::run(device, &detail::Kernels::predictions, own.to(device), out);
        return out.to(Device::cpu());
      };
      EXPECT_TRUE(bitwise_equal(run_predictions(Device::cuda()), run_predictions(Device::cpu()))) << classes;
    }
}

TEST_F(CudaElementwise, AddsGradientsInAnyLayout) {
  const Tensor a = random_values(kOdd, 13).to(DType::f32), b = random_values(kOdd, 14).to(DType::f32);
  Tensor sum = to_cuda(a.to(Layout::channels_last)).clone(), expected = a.to(Layout::channels_last).clone();
  detail::accumulate(sum, to_cuda(b));
  detail::accumulate(expected, b);
  EXPECT_TRUE(bitwise_equal(sum.to(Device::cpu()), expected));
}

}  // namespace
}  // namespace fq::cuda_elementwise_test
