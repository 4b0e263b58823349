// Whole training steps of quantized networks: none waits for the GPU, however ranges change.

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/layers/modules/checkpoint.h"
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

}  // namespace
}  // namespace fq::cuda_steps_test
