#include "fakequant/core/ops/norm.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "core/operator_run.h"
#include "cuda_device.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/tape.h"

namespace fq::cuda_norm_test {
namespace {

using test::difference;
using test::random_values;

class CudaNorm : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// Sums of thousands of values, in f64 on the device, in parts of f32 on the CPU: relative to magnitudes of
/// some hundreds.
double tolerance(DType dtype) { return dtype == DType::f64 ? 1e-11 : 3e-5; }

struct Batch {
  Shape shape;
  DType dtype = DType::f32;
  bool training = true, parameters = true;
  double center = 0.0;
};

/// y, dx, dgamma, dbeta, the running mean and variance.
std::vector<Tensor> run_batch_norm(Device device, const Batch& b) {
  const Shape each{b.shape[1]};
  const auto value = [&](const Shape& shape, unsigned seed, double low, double high) {
    return random_values(shape, seed, low, high).to(b.dtype).to(device);
  };
  const Variable x(value(b.shape, 1, b.center - 2, b.center + 2), true);
  const Variable gamma = b.parameters ? Variable(value(each, 2, 0.5, 1.5), true) : Variable();
  const Variable beta = b.parameters ? Variable(value(each, 3, -1, 1), true) : Variable();
  Tensor mean = value(each, 4, -1, 1).to(DType::f32), variance = value(each, 5, 0.5, 2).to(DType::f32);
  const Variable y = ops::batch_norm(x, gamma, beta, mean, variance, b.training);
  y.backward(value(b.shape, 6, -1, 1));
  std::vector<Tensor> out{y.tensor(), x.grad(), mean, variance};
  if (b.parameters) out.insert(out.end(), {gamma.grad(), beta.grad()});
  return out;
}

TEST_F(CudaNorm, HandlesBatchesOfManySizes) {
  const std::vector<Shape> shapes{{2, 1}, {5003, 3}, {257, 37}, {3, 16, 19, 23}, {7, 33, 41}, {40, 1030}};
  for (const auto& shape : shapes)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool training : {true, false}) {
        const Batch batch{shape, dtype, training, shape[1] != 37};
        EXPECT_EQ(difference(run_batch_norm(Device::cuda(), batch), run_batch_norm(Device::cpu(), batch),
                             tolerance(dtype)),
                  "")
            << to_string(shape) << name(dtype) << training;
      }
}

TEST_F(CudaNorm, EvaluationMatchesTheCpuBitwise) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Batch batch{{3, 19, 31, 7}, dtype, false};
    const auto found = run_batch_norm(Device::cuda(), batch), expected = run_batch_norm(Device::cpu(), batch);
    for (const std::size_t i : {0u, 1u, 2u, 3u})
      EXPECT_TRUE(bitwise_equal(found[i].to(Device::cpu()), expected[i])) << i;
  }
}

TEST_F(CudaNorm, IsAccurateForALargeMean) {
  const Batch batch{{20000, 2}, DType::f64, true, true, 1e6};
  const auto found = run_batch_norm(Device::cuda(), batch), expected = run_batch_norm(Device::cpu(), batch);
  EXPECT_EQ(difference({found[0]}, {expected[0]}, 1e-8), "");  // 1e6 has an ulp of 1e-10
}

TEST_F(CudaNorm, EmptyBatchKeepsTheStatistics) {
  const Batch batch{{0, 3, 2, 2}};
  EXPECT_EQ(difference(run_batch_norm(Device::cuda(), batch), run_batch_norm(Device::cpu(), batch), 0.0), "");
}

/// Factor and shift, the gradients of sums, gamma and beta, and the running ones.
std::vector<Tensor> run_sums(Device device, bool training, bool with_bias) {
  const Shape shape{5, 20, 13, 11}, each{20};
  std::vector<std::int32_t> values(static_cast<std::size_t>(numel(shape))), bias(20);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int32_t>(i * 7919 % 60013) - 20000;
  for (std::size_t c = 0; c < bias.size(); ++c) bias[c] = static_cast<std::int32_t>(c) * 100 - 1000;
  const ProductSums sums{Tensor::from(values, shape).to(Layout::channels_last).to(device),
                         with_bias ? Tensor::from(bias, each).to(device) : Tensor(),
                         with_bias ? random_values(each, 1, 1e-5, 1e-3).to(DType::f32).to(device)
                                   : Tensor::scalar(1e-4).to(device),
                         1};
  const Variable leaf(Tensor::zeros(shape, DType::f32, device), true);
  const Variable x = detail::record("test", Accumulator{sums}, {leaf},
                                    [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
  const Variable gamma(random_values(each, 2).to(DType::f32).to(device), true);
  const Variable beta(random_values(each, 3).to(DType::f32).to(device), true);
  Tensor mean = Tensor::zeros(each, DType::f32, device),
         variance = Tensor::full(each, 0.5, DType::f32, device);
  const Variable y = ops::batch_norm(x, gamma, beta, mean, variance, training);
  const auto& normalized = std::get<NormalizedSums>(y.accumulator()->value);
  std::vector<Tensor> out{normalized.factor, normalized.shift, mean, variance};
  y.backward(random_values(shape, 6).to(DType::f32).to(Layout::channels_last).to(device));
  out.insert(out.end(), {leaf.grad(), gamma.grad(), beta.grad()});
  return out;
}

TEST_F(CudaNorm, HandlesUnroundedSums) {
  for (const bool training : {true, false})
    for (const bool with_bias : {true, false}) {
      const auto found = run_sums(Device::cuda(), training, with_bias);
      const auto expected = run_sums(Device::cpu(), training, with_bias);
      EXPECT_EQ(difference(found, expected, 1e-4), "") << training;  // values of some hundreds, 700 a sum
      // The statistics of sums are exact. The gradient of a live batch norm has float sums.
      for (std::size_t i = 0; i < (training ? 4u : 5u); ++i)
        EXPECT_TRUE(bitwise_equal(found[i].to(Device::cpu()), expected[i])) << i;
    }
}

TEST_F(CudaNorm, MomentsOfIntegersHaveTheBitsOfTheCpu) {
  for (const Shape& shape : {Shape{0, 3}, Shape{1, 5}, Shape{100003, 3}, Shape{257, 130}}) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(numel(shape)));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(i) * 2654435761u);
    const Tensor x = Tensor::from(values, shape);
    Tensor expected = Tensor::empty({2, shape[1]}, DType::f64),
           found = Tensor::empty({2, shape[1]}, DType::f64, Device::cuda());
    detail::run(Device::cpu(), &detail::Kernels::moments, x, expected);
    detail::run(Device::cuda(), &detail::Kernels::moments, x.to(Device::cuda()), found);
    EXPECT_TRUE(bitwise_equal(found.to(Device::cpu()), expected)) << to_string(shape);
  }
}

/// Factor, shift and bias codes of sums as the folded layer has them, and the gradients.
std::vector<Tensor> run_folded(Device device, const Shape& shape, bool with_bias) {
  const Shape each{shape[1]};
  const auto channel = [&](unsigned seed, double least, double most) {
    return random_values(each, seed, least, most).to(DType::f32);
  };
  Tensor factors = channel(2, -1.0, 1.0);
  factors.mutable_data<float>()[0] = 0;
  factors.mutable_data<float>()[1] = 1e-12f;
  const auto origin = std::make_shared<const ProductOrigin>(
      ProductOrigin{Tensor::scalar(0.013).to(device), channel(1, 0.1, 1.0).to(device), 127.0f,
                    with_bias ? channel(5, -1.0, 1.0).to(device) : Tensor(), 127 * 127 * 9});
  std::vector<std::int32_t> values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int32_t>(i * 7919 % 60013) - 20000;
  const ProductSums sums{
      Tensor::from(values, shape).to(device), {}, Tensor::scalar(1e-4).to(device), 1, origin};
  const Variable leaf(Tensor::zeros(shape, DType::f32, device), true);
  const Variable x = detail::record("test", Accumulator{sums}, {leaf},
                                    [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
  const Variable gamma(factors.to(device), true), beta(channel(3, -1.0, 1.0).to(device), true);
  const Variable y = ops::batch_norm(x, gamma, beta, channel(4, -1.0, 1.0).to(device),
                                     channel(6, 0.01, 2.0).to(device), false, 0.1, 1e-5, true);
  const auto& normalized = std::get<NormalizedSums>(y.accumulator()->value);
  std::vector<Tensor> out{normalized.factor, normalized.shift, normalized.bias};
  y.backward(random_values(shape, 7).to(DType::f32).to(device));
  out.insert(out.end(), {leaf.grad(), gamma.grad(), beta.grad()});
  return out;
}

TEST_F(CudaNorm, SumsMatchTheFoldedLayer) {
  for (const Shape& shape : {Shape{64, 20}, Shape{5, 20, 37}})
    for (const bool with_bias : {true, false}) {
      const auto found = run_folded(Device::cuda(), shape, with_bias);
      const auto expected = run_folded(Device::cpu(), shape, with_bias);
      EXPECT_EQ(expected[0].data<float>()[0], 0);  // the channel is 0, its output is the bias
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_TRUE(bitwise_equal(found[i].to(Device::cpu()), expected[i])) << i;
      for (std::size_t i = 3; i < found.size(); ++i)
        EXPECT_EQ(difference({found[i]}, {expected[i]}, 1e-3), "") << i;  // sums of 200 values of some 10^4
    }
}

std::vector<Tensor> run_layer_norm(Device device, const Shape& shape, DType dtype, bool parameters) {
  const auto value = [&](const Shape& of, unsigned seed) {
    return random_values(of, seed).to(dtype).to(device);
  };
  const Variable x(value(shape, 1), true);
  const Shape each{shape.back()};
  const Variable gamma = parameters ? Variable(value(each, 2), true) : Variable();
  const Variable beta = parameters ? Variable(value(each, 3), true) : Variable();
  const Variable y = ops::layer_norm(x, gamma, beta);
  y.backward(value(shape, 4));
  std::vector<Tensor> out{y.tensor(), x.grad()};
  if (parameters) out.insert(out.end(), {gamma.grad(), beta.grad()});
  return out;
}

TEST_F(CudaNorm, HandlesRowsOfManyLengths) {
  const std::vector<Shape> shapes{{700, 1},  {1001, 7}, {300, 8}, {33, 129},
                                  {5, 2049}, {2, 5003}, {0, 5},   {3, 4, 1024}};
  for (const auto& shape : shapes)
    for (const DType dtype : {DType::f32, DType::f64})
      EXPECT_EQ(difference(run_layer_norm(Device::cuda(), shape, dtype, shape[0] != 5),
                           run_layer_norm(Device::cpu(), shape, dtype, shape[0] != 5), tolerance(dtype)),
                "")
          << to_string(shape) << name(dtype);
}

/// y, dx, dgamma.
std::vector<Tensor> run_rms_norm(Device device, const Shape& shape, DType dtype, bool scaled, int axes = 1) {
  const auto value = [&](const Shape& of, unsigned seed) {
    return random_values(of, seed).to(dtype).to(device);
  };
  const Variable x(value(shape, 1), true);
  const Variable gamma =
      scaled ? Variable(value(Shape(shape.end() - axes, shape.end()), 2), true) : Variable();
  const Variable y = ops::rms_norm(x, gamma, axes, 1e-6);
  y.backward(value(shape, 3));
  return {y.tensor(), x.grad(), scaled ? gamma.grad() : Tensor()};
}

TEST_F(CudaNorm, RmsNormHandlesRowsOfManySizes) {
  const std::vector<Shape> shapes{{1, 1}, {3, 7}, {2, 5, 64}, {70, 257}, {5, 4099}, {513, 24}, {0, 8}};
  for (const auto& shape : shapes)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool scaled : {true, false}) {
        const auto found = run_rms_norm(Device::cuda(), shape, dtype, scaled);
        const auto expected = run_rms_norm(Device::cpu(), shape, dtype, scaled);
        EXPECT_EQ(difference(found, expected, tolerance(dtype)), "") << to_string(shape) << name(dtype);
        // Both sum rounded squares with at least 48 bits and round the sum once. The orders of the sums
        // differ, but not in the bits of these sums.
        const bool same = bitwise_equal(found[0].to(Device::cpu()), expected[0]);
        EXPECT_TRUE(same || dtype == DType::f64) << to_string(shape);
      }
}

/// Gradients of a normalization of x, whose gradient also has another reader, from a masked dy. `fused`: in
/// one kernel.
std::vector<Tensor> run_masked(bool fused, bool rms, const Shape& shape, DType dtype, bool parameters) {
  const auto value = [&](const Shape& of, unsigned seed) {
    return random_values(of, seed).to(dtype).to(Device::cuda());
  };
  const Grid grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.7), "q").to(Device::cuda());
  const auto pass = [](const Tensor& dy) { return std::vector<Tensor>{dy}; };
  const Variable leaf(value(shape, 1), true), x = detail::record("x", leaf.value(), {leaf}, pass);
  const Variable from = fused ? x : detail::record("from", x.value(), {x}, pass);
  const Shape each{shape.back()};
  const Variable gamma = parameters ? Variable(value(each, 2), true) : Variable();
  const Variable beta = parameters && !rms ? Variable(value(each, 3), true) : Variable();
  const Variable y = rms ? ops::rms_norm(from, gamma) : ops::layer_norm(from, gamma, beta);
  const Tensor mask = quantize(y.tensor().to(DType::f32), grid).mask;
  const Variable masked = detail::record("mask", y.value(), {y}, [mask, fused](detail::BackwardCall& call) {
    call.dy.add_mask(mask);
    if (!fused) call.dy.evaluate();
    return detail::pass_gradient(call);
  });
  ops::add(x, masked).backward(value(shape, 4));
  std::vector<Tensor> out{leaf.grad()};
  if (parameters) out.push_back(gamma.grad());
  if (beta.defined()) out.push_back(beta.grad());
  return out;
}

TEST_F(CudaNorm, FusedGradientsMatchSeparateKernelsBitwise) {
  const std::vector<Shape> shapes{{700, 1},  {1001, 7}, {300, 8}, {33, 129},    {5, 2049},
                                  {2, 5003}, {0, 5},    {1, 8},   {3, 4, 1024}, {1700, 520}};
  for (const bool rms : {false, true})
    for (const auto& shape : shapes)
      for (const DType dtype : {DType::f32, DType::f64})
        for (const bool parameters : {false, true}) {
          const auto fused = run_masked(true, rms, shape, dtype, parameters),
                     apart = run_masked(false, rms, shape, dtype, parameters);
          for (std::size_t i = 0; i < fused.size(); ++i)
            EXPECT_TRUE(bitwise_equal(fused[i], apart[i])) << to_string(shape) << name(dtype) << rms << i;
        }
}

TEST_F(CudaNorm, RmsNormOfSeveralAxes) {
  EXPECT_EQ(
      difference(run_rms_norm(Device::cuda(), {6, 3, 11, 5}, DType::f32, true, 2),
                 run_rms_norm(Device::cpu(), {6, 3, 11, 5}, DType::f32, true, 2), tolerance(DType::f32)),
      "");
}

TEST_F(CudaNorm, RmsNormOfSpecialRows) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float special : {0.0f, 1e-30f, 1e25f, infinity, std::nanf("")}) {
    Tensor x = Tensor::full({3, 20}, special, DType::f32);
    x.mutable_data<float>()[25] = 0.5f;
    const auto y = [&](Device device) {
      return ops::rms_norm(x.to(device), {}, 1, 1e-6).tensor().to(Device::cpu());
    };
    const Tensor found = y(Device::cuda()), expected = y(Device::cpu());
    for (std::int64_t i = 0; i < 60; ++i) {
      const float a = found.data<float>()[i], b = expected.data<float>()[i];
      EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b))) << special << ' ' << i << ' ' << a << ' ' << b;
    }
  }
}

TEST_F(CudaNorm, RmsNormIsOneLaunchForward) {
  const Variable x(random_values({64, 96}, 1).to(DType::f32).to(Device::cuda()), true);
  const Variable gamma(random_values({96}, 2).to(DType::f32).to(Device::cuda()), true);
  auto before = test::launches_so_far();
  const Variable y = ops::rms_norm(x, gamma);
  (void)y.tensor();
  EXPECT_EQ(test::launches_so_far() - before, 1);
  const Tensor dy = Tensor::full({64, 96}, 1.0, DType::f32, Device::cuda());
  before = test::launches_so_far();
  y.backward(dy);
  EXPECT_LE(test::launches_so_far() - before, 3);  // dx, and the sum over rows of dgamma in two
}

}  // namespace
}  // namespace fq::cuda_norm_test
