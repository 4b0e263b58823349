#include <algorithm>
#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/backend/capture.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/detail/call_cache.h"
#include "fakequant/layers/modules/detail/joined_linears.h"
#include "fakequant/layers/quantizer/compress.h"
#include "layers/networks.h"

namespace fq::cuda_joined_test {
namespace {

using test::random_tensor;

class CudaJoined : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
  void TearDown() override { cuda::count_work(false); }
};

constexpr std::int64_t kSamples = 2, kTokens = 24, kWidth = 64;

Tensor input(unsigned seed) { return random_tensor({kSamples, kTokens, kWidth}, -2, 2, seed); }

AttentionOptions grouped() { return {.width = kWidth, .heads = 4, .kv_heads = 2, .causal = true}; }

/// An attention layer, calibrated on the CPU and moved to the GPU.
std::shared_ptr<Graph> network(const AttentionOptions& options, const QuantConfig& config) {
  const RandomScope random(7, 0);
  std::vector<GraphNode> nodes{{"attention", std::make_shared<Attention>(options), {"input"}}};
  auto model = std::make_shared<Graph>(std::move(nodes));
  quantize(*model, config, {1, kTokens, kWidth});
  test::observe(*model, input(1));
  model->train();
  model->to(Device::cuda());
  return model;
}
std::shared_ptr<Graph> network(const AttentionOptions& options) {
  return network(options, QuantConfig::preset("int8"));
}

struct Outcome {
  Tensor y, dx;
  std::vector<std::pair<std::string, Tensor>> gradients;
  std::int64_t forward_products = 0, backward_products = 0;
};

std::int64_t products() {
  std::int64_t out = 0;
  for (const auto& work : cuda::counted_work()) out += work.products;
  return out;
}

/// Runs forward and backward, with q, k and v as one product where that is supported, or each by itself.
Outcome run(Module& model, bool together) {
  // A cache of module calls makes each layer run by itself.
  detail::CallCache cache({});
  std::optional<detail::CallCacheScope> alone;
  if (!together) alone.emplace(cache);
  model.zero_grad();
  const Variable x(input(2).to(Device::cuda()), true);
  Outcome out;
  cuda::count_work(true);
  const Variable y = model(x);
  out.y = y.tensor().to(Device::cpu());
  out.forward_products = products();
  y.backward(random_tensor(y.shape(), -1, 1, 3).to(Device::cuda()));
  out.backward_products = products() - out.forward_products;
  cuda::count_work(false);
  out.dx = x.grad().to(Device::cpu());
  for (const auto& [name, value] : model.named_parameters())
    if (value.grad().defined()) out.gradients.emplace_back(name, value.grad().to(Device::cpu()));
  return out;
}

/// Products of joined and separate layers. Each layer has one product forward and two backward.
constexpr std::int64_t kJoined = 2, kSeparate = 4;

double relative_difference(const Tensor& found, const Tensor& expected) {
  const auto x = found.to_vector<float>(), y = expected.to_vector<float>();
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(y[i])));
    off = std::max(off, std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
  }
  return off == 0 ? 0 : off / largest;
}

/// Sums of codes are exact. The gradient of x is one f32 sum over all channels instead of three sums that are
/// added, and a GPU may sum over the rows of a wider gradient in another order. Each of some 100 terms rounds
/// by 2^-24. Measured on the simulated device: 0 for parameters, 1.2e-7 for x.
constexpr double kGradients = 1e-6;

void expect_equal(const Outcome& found, const Outcome& expected) {
  EXPECT_TRUE(bitwise_equal(found.y, expected.y));
  EXPECT_LT(relative_difference(found.dx, expected.dx), kGradients);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (std::size_t i = 0; i < found.gradients.size(); ++i) {
    EXPECT_EQ(found.gradients[i].first, expected.gradients[i].first);
    EXPECT_LT(relative_difference(found.gradients[i].second, expected.gradients[i].second), kGradients)
        << found.gradients[i].first;
  }
}

TEST_F(CudaJoined, MatchesSeparateLayers) {
  for (const std::int64_t kv_heads : {1, 2, 4})
    for (const bool bias : {false, true}) {
      AttentionOptions options = grouped();
      options.kv_heads = kv_heads;
      options.bias = bias;
      const auto model = network(options);
      // The first products of a shape choose an algorithm.
      for (const bool together : {false, true}) (void)run(*model, together);
      const Outcome expected = run(*model, false), found = run(*model, true);
      expect_equal(found, expected);
      EXPECT_EQ(found.forward_products, kJoined);
      EXPECT_EQ(found.backward_products, 2 * kJoined);
      EXPECT_EQ(expected.forward_products, kSeparate);
      EXPECT_EQ(expected.backward_products, 2 * kSeparate);
    }
}

/// Rotary positions read and write q and k in place. The separate layers transpose their heads.
TEST_F(CudaJoined, RotatesInPlace) {
  AttentionOptions options = grouped();
  options.rotary = true;
  options.rotary_scaling = {.kind = RotaryScaling::Kind::linear, .factor = 2};
  const auto model = network(options);
  for (const bool together : {false, true}) (void)run(*model, together);
  const Outcome expected = run(*model, false), found = run(*model, true);
  expect_equal(found, expected);
  EXPECT_EQ(found.forward_products, kJoined);
}

/// All weights of a model are quantized in one launch before a step, and share the storage too.
TEST_F(CudaJoined, ReadsCodesOfAllWeights) {
  const auto model = network(grouped());
  const Outcome expected = run(*model, false);
  for (auto& parameter : model->parameters()) parameter.mutable_tensor().mark_written();
  quantize_weights(*model);
  const auto before = test::launches_so_far();
  quantize_weights(*model);
  EXPECT_EQ(test::launches_so_far(), before);
  (void)run(*model, true);
  const Outcome found = run(*model, true);
  expect_equal(found, expected);
  EXPECT_EQ(found.forward_products, kJoined);
}

/// A step changes the weights. Ranges that are set again change the grid.
TEST_F(CudaJoined, FollowsWeightsAndRanges) {
  const auto model = network(grouped());
  for (int step = 0; step < 3; ++step) {
    expect_equal(run(*model, true), run(*model, false));
    auto& k = dynamic_cast<QuantModule&>(model->at("attention.k_proj"));
    Variable weight = k.quantized_weight();
    if (step == 0)
      weight.mutable_tensor().copy_from(random_tensor(weight.shape(), -0.5, 0.5, 9).to(Device::cuda()));
    if (step == 1) k.weight_quantizer()->set_amax(Tensor::full({weight.dim(0)}, 0.25));
  }
}

TEST_F(CudaJoined, SumsHaveTheBitsOfTheCpu) {
  const auto model = network(grouped());
  model->eval();
  const NoGrad no_grad;
  const char* const names[] = {"attention.q_proj", "attention.k_proj", "attention.v_proj"};
  std::vector<const Linear*> layers;
  for (const char* name : names) layers.push_back(&dynamic_cast<const Linear&>(model->at(name)));
  const Variable found = detail::JoinedLinears().products(Variable(input(2).to(Device::cuda())), layers);
  ASSERT_TRUE(found.defined());
  EXPECT_NE(found.accumulator(), nullptr);
  model->to(Device::cpu());
  std::vector<Tensor> parts;
  for (const char* name : names) parts.push_back(model->at(name)(Variable(input(2))).tensor());
  EXPECT_TRUE(bitwise_equal(found.tensor().to(Device::cpu()), detail::join(parts, 2)));
  EXPECT_FALSE(detail::JoinedLinears().products(Variable(input(2)), layers).defined());
}

TEST_F(CudaJoined, Evaluates) {
  const auto model = network(grouped());
  model->eval();
  const NoGrad no_grad;
  const auto evaluate = [&] {
    return (*model)(Variable(input(2).to(Device::cuda()))).tensor().to(Device::cpu());
  };
  detail::CallCache cache({});
  Tensor expected;
  {
    const detail::CallCacheScope alone(cache);
    expected = evaluate();
  }
  (void)evaluate();
  cuda::count_work(true);
  EXPECT_TRUE(bitwise_equal(evaluate(), expected));
  EXPECT_EQ(products(), kJoined);
}

/// Replayed work has the bits of called work.
TEST_F(CudaJoined, IsCaptured) {
  const auto model = network(grouped());
  const Outcome expected = run(*model, true);
  model->zero_grad();
  const Variable x(input(2).to(Device::cuda()), true);
  const Tensor dy = random_tensor(expected.y.shape(), -1, 1, 3).to(Device::cuda());
  detail::Capture capture(Device::cuda());
  Variable y;
  for (auto& parameter : model->parameters()) parameter.mutable_tensor().mark_written();
  capture.add([&] {
    quantize_weights(*model);
    y = (*model)(x);
  });
  capture.add([&] { y.backward(dy); });
  capture.launch(0);
  capture.launch(1);
  EXPECT_TRUE(bitwise_equal(y.tensor().to(Device::cpu()), expected.y));
  EXPECT_TRUE(bitwise_equal(x.grad().to(Device::cpu()), expected.dx));
  for (const auto& [name, value] : model->named_parameters())
    for (const auto& [other, gradient] : expected.gradients)
      if (name == other) {
        EXPECT_TRUE(bitwise_equal(value.grad().to(Device::cpu()), gradient)) << name;
      }
}

/// Layers that cannot be joined run by themselves, with the same results.
TEST_F(CudaJoined, OtherLayersRunByThemselves) {
  const auto expect_separate = [](const std::shared_ptr<Graph>& model, const char* what) {
    (void)run(*model, false);
    const Outcome expected = run(*model, false), found = run(*model, true);
    EXPECT_EQ(found.forward_products, expected.forward_products) << what;
    EXPECT_TRUE(bitwise_equal(found.y, expected.y)) << what;
    EXPECT_TRUE(bitwise_equal(found.dx, expected.dx)) << what;
  };
  const auto quantizer = [](const std::shared_ptr<Graph>& model,
                            const std::string& path) -> TensorQuantizer& {
    return dynamic_cast<TensorQuantizer&>(model->at("attention." + path));
  };
  auto config = QuantConfig::preset("int8");
  config.rules.push_back({.pattern = "*k_proj.weight_quantizer", .fields = {.num_bits = 4}});
  expect_separate(network(grouped(), config), "formats");
  expect_separate(network(grouped(), QuantConfig::preset("fp8")), "float codes");
  const auto observed = network(grouped());
  quantizer(observed, "q_proj.input_quantizer").set_observing(true);
  expect_separate(observed, "observer");
  const auto rounded = network(grouped());
  quantizer(rounded, "v_proj.output_quantizer").set_amax(Tensor::scalar(3.0));
  quantizer(rounded, "v_proj.output_quantizer").set_enabled(true);
  expect_separate(rounded, "output quantizer");
  const auto floats = network(grouped());
  quantizer(floats, "k_proj.weight_quantizer").set_enabled(false);
  expect_separate(floats, "float weight");
  const auto learned = network(grouped());
  ASSERT_GT(learn_weight_ranges(*learned), 0);
  expect_separate(learned, "learned ranges");
  const auto checkpointed = network(grouped());
  checkpointed->at("attention.q_proj").set_checkpointed(true);
  expect_separate(checkpointed, "checkpoint");
  AttentionOptions unaligned = grouped();
  unaligned.head_size = 5;
  unaligned.kv_heads = 1;
  expect_separate(network(unaligned), "codes at any address");
  const auto frozen = network(grouped());
  for (auto& [name, value] : frozen->named_parameters())
    if (name == "attention.v_proj.weight") value.set_requires_grad(false);
  expect_separate(frozen, "frozen weight");
}

}  // namespace
}  // namespace fq::cuda_joined_test
