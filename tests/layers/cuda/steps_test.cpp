// Whole training steps of quantized networks: none waits for the GPU, however ranges change.

#include <algorithm>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/attention.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/layers/quantizer/compress.h"
#include "layers/networks.h"

namespace fq::cuda_steps_test {
namespace {

using namespace fq::test;

class CudaSteps : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

std::shared_ptr<Module> calibrated(const QuantConfig& config) {
  auto model = residual_net();
  quantize(*model, config, {1, 1, 8, 8});
  for (auto& [name, q, aliases] : named_quantizers(*model)) {
    q->set_observing(true);
    q->set_quantizing(false);
  }
  model->eval();
  const NoGrad no_grad;
  (void)(*model)(Variable(random_tensor({4, 1, 8, 8}, -1, 1))).tensor();
  for (auto& [name, q, aliases] : named_quantizers(*model)) {
    q->set_observing(false);
    q->set_quantizing(true);
    if (q->enabled() && q->descriptor().needs_amax()) q->load_calibrated_amax();
  }
  return model;
}

void train_step(Module& model, const Tensor& x, const Tensor& labels) {
  model.zero_grad();
  ops::cross_entropy(model(Variable(x)), labels).backward();
  std::vector<ops::SgdUpdate> updates;
  for (auto& [name, value] : model.named_parameters())
    if (value.grad().defined()) updates.push_back({value.mutable_tensor(), value.grad(), {}, 0.01});
  ops::sgd_step(updates, {});
}

/// The first step loads libraries, tries products and copies what stays: it may wait.
void expect_no_waits(Module& model, const std::string& name) {
  model.to(Device::cuda());
  model.train();
  std::vector<Tensor> x;
  for (unsigned i = 0; i < 4; ++i)
    x.push_back(random_tensor({6, 1, 8, 8}, -1.0f - 0.2f * static_cast<float>(i), 1, i).to(Device::cuda()));
  const Tensor labels = Tensor::from<std::int64_t>({0, 1, 2, 3, 4, 5}).to(Device::cuda());
  train_step(model, x[0], labels);
  const auto waits = waits_so_far();
  for (std::size_t i = 1; i < x.size(); ++i) train_step(model, x[i], labels);
  EXPECT_EQ(waits_so_far(), waits) << name;
  synchronize(Device::cuda());
}

/// An int8 network whose quantizers of activations `change` gets.
std::shared_ptr<Module> network(const std::function<void(TensorQuantizer&)>& change = {}) {
  auto model = calibrated(QuantConfig::preset("int8"));
  for (auto& [name, q, aliases] : named_quantizers(*model))
    if (change && q->enabled() && name.find("weight_quantizer") == std::string::npos) change(*q);
  return model;
}

TEST_F(CudaSteps, MatchTheCpuForFrozenRanges) { expect_no_waits(*network(), "frozen"); }

TEST_F(CudaSteps, MatchTheCpuForRunningRanges) {
  expect_no_waits(*network([](TensorQuantizer& q) { q.update([](QuantParams& s) { s.running = true; }); }),
                  "running");
}

TEST_F(CudaSteps, MatchTheCpuForRunningRangesInCheckpointedBlocks) {
  auto model = network([](TensorQuantizer& q) { q.update([](QuantParams& s) { s.running = true; }); });
  set_checkpointing(*model, "conv?");
  expect_no_waits(*model, "running, checkpointed");
}

TEST_F(CudaSteps, MatchTheCpuForLearnedRanges) {
  for (const auto gradient : {AmaxGradient::clip, AmaxGradient::lsq}) {
    auto model = network();
    learn_ranges(*model, gradient);
    expect_no_waits(*model, gradient == AmaxGradient::clip ? "clip" : "lsq");
  }
}

TEST_F(CudaSteps, MatchTheCpuForDynamicRanges) {
  auto model = calibrated(QuantConfig::preset("int8"));
  set_quantizer_attributes(*model, "*input_quantizer*", {{"dynamic", true}});
  expect_no_waits(*model, "dynamic");
  set_quantizer_attributes(*model, "*weight_quantizer", {{"dynamic", true}});
  expect_no_waits(*model, "dynamic weights");
}

TEST_F(CudaSteps, MatchTheCpuForEachPreset) {
  for (const char* preset : {"fp8", "fp8_per_channel_per_token", "nvfp4", "mxfp8", "mxfp4", "mxint8"})
    expect_no_waits(*calibrated(QuantConfig::preset(preset)), preset);
}

/// Returns the launches of a kernel during a call.
template <class F>
std::int64_t launches_of(const std::string& kernel, F&& call) {
  cuda::count_work(true);
  call();
  const auto all = cuda::counted_work();
  cuda::count_work(false);
  const auto found = std::ranges::find(all, kernel, &cuda::KernelWork::kernel);
  return found == all.end() ? 0 : found->launches;
}

/// Backward decodes the inputs of three products. The factors of their weights are made with the codes, also
/// if evaluation made codes before.
TEST_F(CudaSteps, DecodeNoWeights) {
  const auto model = network();
  model->to(Device::cuda());
  model->train();
  const Tensor x = random_tensor({6, 1, 8, 8}, -1, 1).to(Device::cuda()),
               labels = Tensor::from<std::int64_t>({0, 1, 2, 3, 4, 5}).to(Device::cuda());
  for (const bool at_once : {false, true}) {
    {
      const NoGrad no_grad;
      (void)(*model)(Variable(x));
    }
    EXPECT_EQ(launches_of("decode",
                          [&] {
                            if (at_once) quantize_weights(*model);
                            train_step(*model, x, labels);
                          }),
              3);
  }
  {
    const BackwardScope exact(BackwardType::fp32);
    EXPECT_EQ(launches_of("decode", [&] { train_step(*model, x, labels); }), 0);
  }
  // Codes of frozen weights have no mask.
  for (auto& [name, parameter] : model->named_parameters())
    if (parameter.rank() > 1) parameter.set_requires_grad(false);
  {
    const NoGrad no_grad;
    (void)(*model)(Variable(x));
  }
  EXPECT_EQ(launches_of("decode", [&] { train_step(*model, x, labels); }), 0);
}

/// The kernels of a GPU drop the same weights as the products of the CPU.
TEST_F(CudaSteps, AttentionDropsTheWeightsOfTheCpu) {
  Attention layer({.width = 24, .heads = 3, .causal = true, .dropout = 0.3});
  layer.train();
  const auto run = [&](Device device) {
    layer.to(device);
    layer.zero_grad();
    const RandomScope scope(3, 8);
    const Variable y = layer(Variable(random_tensor({2, 40, 24}, -1, 1).to(device)));
    EXPECT_EQ(random_stream().op, 1);
    y.backward(random_tensor({2, 40, 24}, -1, 1, 2).to(device));
    std::vector<float> out = y.tensor().to_vector<float>();
    for (const auto& [name, parameter] : layer.named_parameters())
      for (const float v : parameter.grad().to_vector<float>()) out.push_back(v);
    return out;
  };
  const auto expected = run(Device::cpu()), found = run(Device::cuda());
  ASSERT_EQ(found.size(), expected.size());
  // Sums of 80 rows in another order, and products of 22 bits. Measured: 2.9e-6 for numbers up to 14.
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 4e-6) << i;
}

}  // namespace
}  // namespace fq::cuda_steps_test
