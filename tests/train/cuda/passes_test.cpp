// Steps of training whose passes are captured, against the same steps called.

#include "fakequant/train/loop/detail/passes.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/core/random.h"
#include "fakequant/core/tape.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/losses.h"
#include "fakequant/train/optimizer.h"
#include "fakequant/train/qat_defaults.h"
#include "train/loop_run.h"

namespace fq::cuda_passes_test {
namespace {

class CudaPasses : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

Tensor noise(const Shape& shape, std::uint64_t seed) {
  Tensor out = Tensor::empty(shape, DType::f32);
  fill_uniform(out, -1, 1, seed);
  return out;
}

struct Outcome {
  std::vector<std::pair<std::string, Tensor>> values;
  std::vector<double> losses;
  std::int64_t graphs = 0;
};

Outcome trained(test::Plan plan, bool capture) {
  Outcome out;
  plan.options.execution.capture = capture;
  plan.device = Device::cuda();
  plan.callbacks.on_step = [&](const StepReport& report) { out.losses.push_back(report.loss); };
  const auto before = test::graphs_so_far();
  const auto trainer = plan.make();
  (void)trainer->fit();
  out.graphs = test::graphs_so_far() - before;
  const StateDict state = trainer->state_dict();
  for (const auto& [name, value] : state.tensors()) out.values.emplace_back(name, value.to(Device::cpu()));
  return out;
}

void expect_same(const test::Plan& plan, std::int64_t least_graphs) {
  const Outcome called = trained(plan, false), captured = trained(plan, true);
  EXPECT_EQ(captured.losses, called.losses);
  ASSERT_EQ(captured.values.size(), called.values.size());
  for (std::size_t i = 0; i < called.values.size(); ++i) {
    EXPECT_EQ(captured.values[i].first, called.values[i].first);
    EXPECT_TRUE(bitwise_equal(captured.values[i].second, called.values[i].second)) << called.values[i].first;
  }
  EXPECT_EQ(called.graphs, 0);
  EXPECT_GE(captured.graphs, least_graphs);
}

TEST_F(CudaPasses, MatchTheCpuForAFloatNetwork) { expect_same({}, 2 * 4 * 3); }

TEST_F(CudaPasses, MatchTheCpuForAQuantizedNetwork) {
  test::Plan plan;
  plan.quantized = true;
  expect_same(plan, 2 * 4 * 3);
}

TEST_F(CudaPasses, SupportAShorterLastBatch) {
  test::Plan plan;
  plan.quantized = true;
  plan.samples = 101;
  expect_same(plan, 2 * 4 * 3);
}

TEST_F(CudaPasses, SupportConsecutivePhases) {
  test::Plan plan;
  plan.quantized = true;
  plan.options.ranges.quant_start = 3;
  plan.options.batch_norm.freeze_bn_after = 9;
  expect_same(plan, 2 * 4 * 2);
}

TEST_F(CudaPasses, SupportRunningAndFrozenRanges) {
  test::Plan plan;
  plan.quantized = true;
  plan.options.ranges.amax = AmaxMode::running;
  plan.options.ranges.amax_momentum = 0.2;
  plan.options.ranges.freeze_amax_after = 9;
  expect_same(plan, 2 * (7 + 7));
}

TEST_F(CudaPasses, SupportRunningRangesInCheckpointedBlocks) {
  test::Plan plan;
  plan.quantized = true;
  plan.options.ranges.amax = AmaxMode::running;
  plan.options.execution.checkpoint_blocks = "*";
  expect_same(plan, 2 * 4 * 3);
}

TEST_F(CudaPasses, SupportDynamicRanges) {
  test::Plan plan;
  plan.quantized = true;
  plan.prepare = [](Module& model) {
    set_quantizer_attributes(model, "*input_quantizer", {{"dynamic", true}});
  };
  expect_same(plan, 2 * 4 * 3);
}

TEST_F(CudaPasses, SupportLearnedRanges) {
  for (const auto gradient : {AmaxGradient::clip, AmaxGradient::lsq}) {
    test::Plan plan;
    plan.quantized = true;
    plan.options.ranges.amax = AmaxMode::learned;
    plan.options.ranges.amax_gradient = gradient;
    expect_same(plan, 2 * 4 * 3);
  }
}

TEST_F(CudaPasses, SupportCheckpointedBlocks) {
  test::Plan plan;
  plan.quantized = true;
  plan.options.execution.checkpoint_blocks = "*";
  expect_same(plan, 2 * 4 * 3);
}

TEST_F(CudaPasses, SeveralBatchesPerStepAreNotCaptured) {
  test::Plan plan;
  plan.options.update.accumulation = 2;
  expect_same(plan, 0);
}

TEST_F(CudaPasses, SynchronizingModulesAreNotCaptured) {
  test::Plan plan;
  plan.quantized = true;
  plan.arithmetic = Arithmetic::reference;
  expect_same(plan, 0);
}

/// A module whose backward pass reads a value on the host.
class ReadsBackward : public Module {
 public:
  [[nodiscard]] std::string type() const override { return "reads_backward"; }

 protected:
  Variable forward(const Variable& x) override {
    return detail::record("reads_backward", x.tensor(), {x}, [](const Tensor& dy) {
      return std::vector<Tensor>{dy.to_vector<float>().empty() ? Tensor() : dy};
    });
  }
  using Module::forward;
};

TEST_F(CudaPasses, SynchronizingBackwardPassesAreNotCaptured) {
  test::Plan plan;
  plan.quantized = true;
  plan.prepare = [](Module& model) { model.replace("drop", std::make_shared<ReadsBackward>()); };
  expect_same(plan, 0);
}

/// Returns for each step the number of host waits and of single kernel launches.
std::vector<std::pair<std::int64_t, std::int64_t>> waits_and_launches(bool capture) {
  test::Plan plan;
  plan.quantized = true;
  plan.validate = false;
  plan.device = Device::cuda();
  plan.options.epochs = 1;
  plan.options.update.clip_norm = plan.options.update.average_decay = 0;
  plan.options.execution.capture = capture;
  plan.loader.prefetch = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> out;
  auto before = std::pair{test::waits_so_far(), test::launches_so_far()};
  plan.callbacks.on_step = [&](const StepReport&) {
    const auto now = std::pair{test::waits_so_far(), test::launches_so_far()};
    out.emplace_back(now.first - before.first, now.second - before.second);
    before = now;
  };
  (void)plan.make()->fit();
  return out;
}

/// Losses and last gradients of five steps of a transformer on windows of ids; some labels are ignored and do
/// not count.
std::vector<Tensor> transformer_steps(const std::string& preset, bool capture) {
  const auto model =
      build_model(ModelSpec::load("gpt", R"({"layers": 1, "width": 32, "heads": 2, "context": 8})"), {8}, 11,
                  {.seed = 1, .dense = true});
  Tensor ids = Tensor::empty({4, 8}, DType::i64), labels = ids.clone();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    ids.mutable_data<std::int64_t>()[i] = i * i % 11;
    labels.mutable_data<std::int64_t>()[i] = i % 7 == 3 ? -100 : (i * i + 1) % 11;
  }
  if (!preset.empty()) {
    quantize(*model, QuantConfig::from_json(preset_config(preset)), ids.shape());
    DataLoader loader(std::make_shared<TensorDataset>(ids, labels), {.batch_size = 4, .shuffle = false});
    calibrate(*model, loader);
  }
  model->train();
  model->to(Device::cuda());
  Sgd optimizer(model->named_parameters(), {.learning_rate = 0.01});
  detail::Passes passes(model, {.loss = make_loss({}), .capture = capture});
  std::vector<Tensor> out;
  for (int i = 0; i < 5; ++i) {
    optimizer.zero_grad();
    out.push_back(
        passes.forward({ids.to(Device::cuda()), labels.to(Device::cuda())}, {}).loss.to(Device::cpu()));
    passes.backward();
    optimizer.step();
  }
  for (const auto& parameter : model->parameters()) out.push_back(parameter.grad().to(Device::cpu()));
  return out;
}

TEST_F(CudaPasses, MatchTheCpuForATransformerInEveryFormat) {
  for (const std::string preset : {"", "int8", "fp8", "w4a8", "nvfp4", "mxfp8", "mxfp4", "q4_0", "8da4w"}) {
    const auto before = test::graphs_so_far();
    const auto captured = transformer_steps(preset, true);
    EXPECT_EQ(test::graphs_so_far() - before, 2 * 4) << preset;
    const auto called = transformer_steps(preset, false);
    ASSERT_EQ(captured.size(), called.size());
    for (std::size_t i = 0; i < called.size(); ++i)
      EXPECT_TRUE(bitwise_equal(captured[i], called[i])) << preset << " " << i;
  }
}

struct LossCase {
  LossOptions loss;
  Tensor labels;  ///< of four classes, [2, 8, 8], or shares of them
  DistillationOptions distillation = {.weight = 0};
};

/// Losses and the last gradient of five steps of a convolution; none but the first two may wait.
std::vector<Tensor> pixel_steps(const LossCase& of, bool capture) {
  const RandomScope seed(3, 0);
  const auto model = std::make_shared<Conv2d>(
      1, 4, Shape{3}, ops::ConvOptions{.stride = {}, .padding = {1}, .dilation = {}, .groups = 1});
  model->to(Device::cuda());
  const Tensor x = noise({2, 1, 8, 8}, 1).to(Device::cuda()), labels = of.labels.to(Device::cuda()),
               followed = noise({2, 4, 8, 8}, 2).to(Device::cuda());
  Sgd optimizer(model->named_parameters(), {.learning_rate = 0.1});
  detail::Passes passes(model,
                        {.loss = make_loss(of.loss), .distillation = of.distillation, .capture = capture});
  std::vector<Tensor> out;
  std::int64_t waits = 0;
  for (int i = 0; i < 5; ++i) {
    if (i == 2) waits = test::waits_so_far();
    optimizer.zero_grad();
    out.push_back(
        passes.forward({x, labels}, {}, of.distillation.weight > 0 ? followed : Tensor()).loss.clone());
    passes.backward();
    optimizer.step();
  }
  EXPECT_EQ(test::waits_so_far(), waits);
  out.push_back(model->parameters().front().grad());
  for (Tensor& each : out) each = each.to(Device::cpu());
  return out;
}

TEST_F(CudaPasses, SupportEveryLoss) {
  Tensor classes = Tensor::empty({2, 8, 8}, DType::i64);
  for (std::int64_t i = 0; i < classes.numel(); ++i) classes.mutable_data<std::int64_t>()[i] = i * i % 4;
  const Tensor shares = ops::softmax(Variable(noise({2, 4, 8, 8}, 7)), 1).tensor();
  const std::vector<double> weights{0.5, 2, 1, 0.25};
  const std::vector<LossCase> cases{
      {{.class_weights = weights}, classes},
      {{.label_smoothing = 0.1, .class_weights = weights, .ignore_index = 1}, classes},
      {{.label_smoothing = 0.1}, shares},
      {{.label_smoothing = 0.1, .class_weights = weights}, shares},
      {{.kind = "bce", .positive_weight = 3}, classes},
      {{.kind = "focal"}, classes},
      {{.kind = "dice"}, classes},
      {{.kind = "huber"}, shares},
      {{.class_weights = weights}, classes, {.kind = "kl", .weight = 0.5}},
      {{}, shares, {.kind = "mse", .weight = 1}},
  };
  for (std::size_t k = 0; k < cases.size(); ++k) {
    const auto before = test::graphs_so_far();
    const auto captured = pixel_steps(cases[k], true);
    EXPECT_EQ(test::graphs_so_far() - before, 2 * 4) << k;
    const auto called = pixel_steps(cases[k], false);
    ASSERT_EQ(captured.size(), called.size());
    for (std::size_t i = 0; i < called.size(); ++i)
      EXPECT_TRUE(bitwise_equal(captured[i], called[i])) << k << " " << i;
  }
}

TEST_F(CudaPasses, AcceptHostLabels) {
  const Tensor y = Tensor::from({0.5f, -1.0f, 2.0f, 0.0f, 1.5f, -0.5f}, {1, 3, 2});
  const Tensor labels = Tensor::from<std::int64_t>({2, -100}, {1, 2});
  const double expected = losses::cross_entropy(y, labels, {}).item();
  EXPECT_NEAR(losses::cross_entropy(y.to(Device::cuda()), labels, {}).item(), expected, 1e-6);
}

TEST_F(CudaPasses, LaunchOnlyGraphsAndTheOptimizer) {
  const auto called = waits_and_launches(false), captured = waits_and_launches(true);
  ASSERT_EQ(captured.size(), 6u);
  for (std::size_t i = 2; i < captured.size(); ++i) {
    EXPECT_EQ(captured[i].first, called[i].first) << i;
    EXPECT_GT(called[i].second, 30) << i;
    EXPECT_EQ(captured[i].second, 1) << i;
  }
}

}  // namespace
}  // namespace fq::cuda_passes_test
