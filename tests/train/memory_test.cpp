// Memory of a training step: the plan predicts the use, saved activations stay within their bounds, and
// no memory is allocated after the first step.

#include <gtest/gtest.h>

#include "fakequant/core/device.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/train/data/hdf5_dataset.h"
#include "fakequant/train/loop/trainer.h"
#include "fakequant/train/memory_plan.h"
#include "train/networks.h"

namespace fq::memory_test {
namespace {

using test::Kind;

const std::string kCnn = R"({"widths": [8, 16, 16]})", kResnet = R"({"widths": [8, 16, 16], "blocks": 2})";

struct Network {
  std::string name, options;
  Shape sample;
};
const Network kNetworks[] = {{"cnn", kCnn, {1, 28, 28}}, {"resnet20", kResnet, {3, 32, 32}}};

OptimizerOptions sgd() {
  OptimizerOptions options;
  options.kind = "sgd";
  return options;
}

std::int64_t memory_in_use() { return memory_stats().in_use; }

/// Bytes that a repeated step keeps between forward and backward, beyond those in use before it.
std::int64_t measured_saved(Module& model, const Tensor& x, const Tensor& y) {
  std::int64_t saved = 0;
  for (int step = 0; step < 2; ++step) {
    model.zero_grad();
    const std::int64_t before = memory_in_use();
    const Variable output = model(Variable(x));
    const Variable loss = ops::cross_entropy(output, y);
    saved = memory_in_use() - before;
    loss.backward();
  }
  return saved;
}

TEST(MemoryPlan, SavedActivationsMatchARun) {
  for (const auto& [name, options, sample] : kNetworks)
    for (const Kind kind : {Kind::float_, Kind::live_bn, Kind::folded}) {
      const auto model = test::built(name, options, sample, kind);
      const Tensor x = test::images(sample, 16), y = test::labels(16);
      const std::int64_t measured = measured_saved(*model, x, y);
      const MemoryPlan plan = plan_memory(*model, x.shape(), sgd());
      // small tensors: a rank 0 loss, scales and statistics of channels are made on meta and on the cpu in
      // different numbers, of 64 bytes and more each
      EXPECT_NEAR(static_cast<double>(plan.saved_activations), static_cast<double>(measured),
                  0.02 * static_cast<double>(measured))
          << name << ' ' << static_cast<int>(kind);
    }
}

TEST(MemoryPlan, ReportsPartsAndPeak) {
  const auto model = test::built("cnn", kCnn, {1, 28, 28}, Kind::live_bn);
  std::int64_t bytes = 0;
  for (const auto& parameter : model->parameters()) bytes += 4 * parameter.numel();
  const MemoryPlan plan = plan_memory(*model, {16, 1, 28, 28}, sgd());
  EXPECT_GE(plan.parameters, bytes);
  EXPECT_LE(plan.parameters, bytes * 5 / 4 + 64 * 40);  // a quarter, and 64 bytes for each small one
  EXPECT_EQ(plan.gradients, plan.parameters);
  EXPECT_EQ(plan.optimizer_state, plan.parameters);
  EXPECT_EQ(plan_memory(*model, {16, 1, 28, 28}).optimizer_state, 2 * plan.parameters);
  EXPECT_GE(plan.weight_codes, bytes / 5);
  EXPECT_GE(plan.input, 16 * 28 * 28 * 4);
  EXPECT_GE(plan.peak, plan.parameters + plan.optimizer_state + plan.input + plan.saved_activations);
  EXPECT_GT(plan_memory(*model, {32, 1, 28, 28}, sgd()).saved_activations, plan.saved_activations * 3 / 2);
}

TEST(MemoryPlan, DoesNotChangeTheModel) {
  const auto model = test::built("resnet20", kResnet, {3, 32, 32}, Kind::live_bn);
  const Tensor x = test::images({3, 32, 32}, 4), y = test::labels(4);
  ops::cross_entropy((*model)(Variable(x)), y).backward();
  std::vector<Tensor> before;
  for (const auto& parameter : model->parameters()) {
    before.push_back(parameter.tensor().clone());
    before.push_back(parameter.grad().clone());
  }
  for (const auto& [name, buffer] : model->named_buffers()) before.push_back(buffer.clone());
  model->eval();
  const std::int64_t host = memory_in_use(), abstract = memory_stats(Device::meta()).in_use;
  (void)plan_memory(*model, x.shape());
  EXPECT_FALSE(model->training());
  EXPECT_EQ(memory_stats(Device::meta()).in_use, abstract);
  EXPECT_LE(memory_in_use(), host + 4096);
  std::size_t i = 0;
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(bitwise_equal(parameter.tensor(), before[i++]));
    EXPECT_TRUE(bitwise_equal(parameter.grad(), before[i++]));
  }
  for (const auto& [name, buffer] : model->named_buffers())
    EXPECT_TRUE(bitwise_equal(buffer, before[i++])) << name;
}

/// Elements that the quantized layers (convolution, linear, addition) put out.
std::int64_t layer_elements(Module& model, const Shape& input) {
  const TraceGraph graph = trace(model, input);
  std::int64_t elements = 0;
  for (const auto& node : graph.nodes)
    if (node.op.starts_with("conv") || node.op == "linear" || node.op == "add")
      elements += numel(graph.values[static_cast<std::size_t>(node.output)].shape);
  return elements;
}

TEST(MemoryPlan, CountsSavedInt8Bytes) {
  for (const auto& [name, options, sample] : kNetworks)
    for (const auto& [kind, most] : {std::pair{Kind::folded, 1.2}, std::pair{Kind::live_bn, 5.3}}) {
      const auto model = test::built(name, options, sample, kind);
      const Tensor x = test::images(sample, 64);
      const auto elements = static_cast<double>(layer_elements(*model, x.shape()));
      const double planned = static_cast<double>(plan_memory(*model, x.shape()).saved_activations) / elements;
      const double measured = static_cast<double>(measured_saved(*model, x, test::labels(64))) / elements;
      EXPECT_LE(planned, most) << name;
      EXPECT_LE(measured, most) << name;
      RecordProperty(name + (kind == Kind::folded ? "_folded" : "_live"), std::to_string(measured));
    }
}

/// The allocator's count of system calls after each step of two epochs.
std::vector<std::int64_t> calls_by_step(const std::shared_ptr<Module>& model, AmaxMode amax) {
  TrainerOptions options{.epochs = 2, .optimizer = sgd(), .ranges = {.amax = amax}};
  std::vector<std::int64_t> calls;
  TrainerCallbacks callbacks;
  callbacks.on_step = [&](const StepReport&) { calls.push_back(memory_stats().system_calls); };
  const auto data = std::make_shared<Hdf5Dataset>(FAKEQUANT_SOURCE_DIR "/data/digits.h5");
  const auto loader = std::make_shared<DataLoader>(
      data, LoaderOptions{.batch_size = 64, .drop_last = true, .seed = 3, .augment = {.shift = 0.5}});
  release_cached_memory();
  (void)Trainer(model, loader, options, nullptr, callbacks).fit();
  return calls;
}

TEST(Memory, IsNotAllocatedAfterTheFirstStep) {
  for (const auto& [name, options, sample] : kNetworks)
    for (const Kind kind : {Kind::float_, Kind::live_bn, Kind::folded}) {
      const auto model = test::built(name, options, {1, 8, 8}, kind);
      const auto calls = calls_by_step(model, kind == Kind::float_ ? AmaxMode::frozen : AmaxMode::running);
      ASSERT_GT(calls.size(), 20u);
      for (std::size_t step = 1; step < calls.size(); ++step)
        EXPECT_EQ(calls[step], calls[0]) << name << ' ' << static_cast<int>(kind) << " step " << step;
    }
}

}  // namespace
}  // namespace fq::memory_test
