#include <cmath>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "cuda_device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/detail/updates.h"

namespace fq::cuda_optimizer_test {
namespace {

using test::random_values;

class CudaOptimizer : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// More tensors than fit into one launch, of f32 and f64 by turns: empty ones, odd ones, one above a sweep.
constexpr std::size_t kTensors = 150;

Shape parameter_shape(std::size_t i) {
  constexpr std::int64_t sizes[] = {1, 7, 8, 9, 0, 257, 1000};
  return i == 70 ? Shape{30001} : Shape{sizes[i % 7]};
}
DType parameter_dtype(std::size_t i) { return i % 3 == 2 ? DType::f64 : DType::f32; }

std::vector<Tensor> tensors(Device device, unsigned seed, double low = -2.0, double high = 2.0) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < kTensors; ++i)
    out.push_back(random_values(parameter_shape(i), seed + static_cast<unsigned>(i), low, high)
                      .to(parameter_dtype(i))
                      .to(device));
  return out;
}

void expect_same(const std::vector<Tensor>& gpu, const std::vector<Tensor>& host) {
  for (std::size_t i = 0; i < host.size(); ++i) {
    EXPECT_TRUE(bitwise_equal(gpu[i].to(Device::cpu()), host[i])) << i;
    for (const double each : host[i].to(DType::f64).to_vector<double>())
      ASSERT_TRUE(std::isfinite(each)) << i;
  }
}

/// Parameters and momenta after three steps.
std::vector<Tensor> run_sgd(Device device, const ops::SgdStep& step) {
  auto parameters = tensors(device, 1), momenta = tensors(device, 1000);
  for (unsigned t = 0; t < 3; ++t) {
    const auto gradients = tensors(device, 2000 + 100 * t);
    std::vector<ops::SgdUpdate> updates;
    for (std::size_t i = 0; i < kTensors; ++i)
      updates.push_back({parameters[i], gradients[i], step.momentum != 0 ? momenta[i] : Tensor(),
                         0.01 * static_cast<double>(i % 5), i % 2 == 0 ? 1e-4 : 0.0});
    ops::sgd_step(updates, step);
  }
  parameters.insert(parameters.end(), momenta.begin(), momenta.end());
  return parameters;
}

TEST_F(CudaOptimizer, SgdMatchesTheCpuBitwise) {
  for (const ops::SgdStep& step : {ops::SgdStep{}, ops::SgdStep{0.9}, ops::SgdStep{0.9, true, 0.25}})
    expect_same(run_sgd(Device::cuda(), step), run_sgd(Device::cpu(), step));
}

std::vector<Tensor> run_adam(Device device, const ops::AdamStep& step) {
  auto parameters = tensors(device, 1), means = tensors(device, 1000), squares = tensors(device, 2000, 0.0);
  for (unsigned t = 0; t < 3; ++t) {
    const auto gradients = tensors(device, 3000 + 100 * t);
    std::vector<ops::AdamUpdate> updates;
    for (std::size_t i = 0; i < kTensors; ++i)
      updates.push_back({parameters[i], gradients[i], means[i], squares[i], static_cast<std::int64_t>(t + 1),
                         0.001, i % 2 == 0 ? 0.01 : 0.0});
    ops::adam_step(updates, step);
  }
  parameters.insert(parameters.end(), means.begin(), means.end());
  parameters.insert(parameters.end(), squares.begin(), squares.end());
  return parameters;
}

TEST_F(CudaOptimizer, AdamMatchesTheCpuBitwise) {
  for (const ops::AdamStep& step : {ops::AdamStep{}, ops::AdamStep{0.8, 0.95, 1e-6, true, 0.5}})
    expect_same(run_adam(Device::cuda(), step), run_adam(Device::cpu(), step));
}

template <template <class> class Rule>
std::vector<Tensor> run_rule(Device device, const Rule<double>& rule) {
  auto parameters = tensors(device, 1);
  std::vector<std::vector<Tensor>> states(3);
  // The mean squares are at least the squared means: RMSprop takes the root of the difference.
  for (int k = 0; k < Rule<double>::states; ++k)
    states[k] = tensors(device, 1000U * (k + 1), k == 0 ? 4.0 : 0.0, k == 0 ? 6.0 : 2.0);
  for (unsigned t = 0; t < 3; ++t) {
    const auto gradients = tensors(device, 5000 + 100 * t);
    std::vector<ops::RuleUpdate<Rule>> updates;
    for (std::size_t i = 0; i < kTensors; ++i) {
      updates.push_back(
          {parameters[i], gradients[i], {}, i % 3 == 0 ? 0.99 : 1, i % 2 == 0 ? 0.01 : 0, rule});
      for (std::size_t k = 0; k < Rule<double>::states; ++k) updates.back().state[k] = states[k][i];
    }
    ops::rule_step<Rule>(updates, 0.5);
  }
  for (const auto& of_rule : states) parameters.insert(parameters.end(), of_rule.begin(), of_rule.end());
  return parameters;
}

template <template <class> class Rule>
void expect_rule(const Rule<double>& rule) {
  expect_same(run_rule<Rule>(Device::cuda(), rule), run_rule<Rule>(Device::cpu(), rule));
}

TEST_F(CudaOptimizer, OtherOptimizersMatchTheCpuBitwise) {
  const detail::Moments<double> moments{0.9, 0.1, 0.99, 0.01};
  expect_rule<detail::DampenedSgd>({0.1, 0.9, 0.5, 0});
  expect_rule<detail::DampenedSgd>({0.1, 0.9, 0.5, 1});
  expect_rule<detail::RmsProp>({0.01, 0.9, 0.1, 1e-8, 0.5, 1});
  expect_rule<detail::RmsProp>({0.01, 0.9, 0.1, 1e-8, 0, 0});
  expect_rule<detail::Adagrad>({0.1, 1e-10});
  expect_rule<detail::NAdam>({moments, 0.01, 0.02, 1.5, 1e-8});
  expect_rule<detail::AmsGrad>({moments, 0.01, 1.5, 1e-8});
  expect_rule<detail::Lion>({0.01, 0.9, 0.1, 0.99, 0.01});
  expect_rule<detail::LambDirection>({moments, 1.5, 1.5, 1e-6, 0.01});
  expect_rule<detail::Descent>({0.1});
}

TEST_F(CudaOptimizer, UpdatesAListInFewLaunchesWithoutSynchronization) {
  const auto parameters = tensors(Device::cuda(), 1), gradients = tensors(Device::cuda(), 2);
  std::vector<ops::SgdUpdate> updates;
  for (std::size_t i = 0; i < kTensors; ++i) updates.push_back({parameters[i], gradients[i], {}, 0.1, 0.0});
  const auto launches = test::launches_so_far(), waits = test::waits_so_far();
  ops::sgd_step(updates, {});
  EXPECT_LE(test::launches_so_far() - launches, 3);  // 86 of f32 in two, 43 of f64 in one
  EXPECT_EQ(test::waits_so_far(), waits);
}

TEST_F(CudaOptimizer, HandlesViewsAndGradientsOfAnotherLayout) {
  const Tensor rows = random_values({5, 4003}, 1).to(DType::f32);
  const Tensor gradient = random_values({3, 4003}, 2).to(DType::f32);
  const Tensor image = random_values({4, 3, 5, 7}, 3).to(DType::f32),
               dy = random_values({4, 3, 5, 7}, 4).to(DType::f32);
  const auto run = [&](Device device) {
    Tensor all = rows.to(device).clone(), kernel = image.to(device).clone();
    const std::vector<ops::SgdUpdate> updates{
        {all.slice(1, 4), gradient.to(device), {}, 0.1, 0.01},
        {kernel, dy.to(Layout::channels_last).to(device), {}, 0.1, 0.01}};
    ops::sgd_step(updates, {});
    return std::vector<Tensor>{all, kernel};
  };
  expect_same(run(Device::cuda()), run(Device::cpu()));
}

TEST_F(CudaOptimizer, UpdatesAveragesAndSwapsContents) {
  auto a = tensors(Device::cpu(), 1), b = tensors(Device::cpu(), 2);
  auto there_a = tensors(Device::cuda(), 1), there_b = tensors(Device::cuda(), 2);
  ops::move_towards(a, b, 0.3);
  ops::move_towards(there_a, there_b, 0.3);
  expect_same(there_a, a);
  ops::swap_contents(there_a, there_b);
  expect_same(there_a, b);
  expect_same(there_b, a);
}

/// Sums of squares in f64, in another order.
TEST_F(CudaOptimizer, ComputesTheTotalNorm) {
  auto host = tensors(Device::cpu(), 1), gpu = tensors(Device::cuda(), 1);
  host.push_back(random_values({70001}, 5));
  gpu.push_back(host.back().to(Device::cuda()));
  gpu.emplace_back();
  const double found = ops::norm(gpu), expected = ops::norm(host);
  EXPECT_NEAR(found, expected, 1e-13 * expected);
  EXPECT_EQ(ops::norm(gpu), found);
  EXPECT_EQ(ops::norm(std::vector<Tensor>{Tensor::zeros({0}, DType::f32, Device::cuda())}), 0.0);
}

TEST_F(CudaOptimizer, RejectsTensorsOnTwoDevices) {
  const Tensor host = Tensor::zeros({2}), gpu = Tensor::zeros({2}, DType::f32, Device::cuda());
  EXPECT_THROW(ops::sgd_step(std::vector<ops::SgdUpdate>{{gpu, host, {}, 0.1, 0.0}}, {}), ArgumentError);
  EXPECT_THROW(ops::sgd_step(std::vector<ops::SgdUpdate>{{gpu, gpu, {}, 0.1}, {host, host, {}, 0.1}}, {}),
               ArgumentError);
  std::vector<Tensor> a{host}, b{gpu};
  EXPECT_THROW(ops::move_towards(a, b, 0.5), ArgumentError);
  EXPECT_THROW(ops::swap_contents(a, b), ArgumentError);
  EXPECT_THROW((void)ops::norm(std::vector<Tensor>{gpu, host}), ArgumentError);
  EXPECT_THROW((void)ops::norm(std::vector<Tensor>{host, gpu}), ArgumentError);
}

}  // namespace
}  // namespace fq::cuda_optimizer_test
