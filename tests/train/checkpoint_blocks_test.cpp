// Gradient checkpointing: the bits of a plain run, and less memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/checkpoint.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/sequential.h"
#include "fakequant/train/memory_plan.h"
#include "train/loop_run.h"
#include "train/networks.h"

namespace fq::checkpoint_blocks_test {
namespace {

using test::Kind;
using testing::HasSubstr;

struct Trained {
  std::vector<std::pair<std::string, Tensor>> values;
  std::int64_t peak = 0;
};

/// All that a model holds after three steps: parameters, buffers, ranges.
Trained trained(const std::shared_ptr<Module>& model, const std::string& pattern, AmaxMode amax,
                const Shape& sample) {
  const auto data = std::make_shared<TensorDataset>(test::images(sample, 48), test::labels(48));
  const auto loader =
      std::make_shared<DataLoader>(data, LoaderOptions{.batch_size = 16, .shuffle = false, .prefetch = 0});
  TrainerOptions options{
      .epochs = 1, .seed = 4, .ranges = {.amax = amax}, .execution = {.checkpoint_blocks = pattern}};
  options.optimizer.kind = "sgd";
  Trained out;
  TrainerCallbacks callbacks;
  callbacks.on_epoch = [&](const EpochReport& epoch) { out.peak = epoch.peak_memory; };
  const std::int64_t before = memory_stats().in_use;
  (void)Trainer(model, loader, options, nullptr, callbacks).fit();
  out.peak -= before;
  for (const auto& [name, value] : model->named_parameters())
    out.values.emplace_back(name, value.tensor().clone());
  for (const auto& [name, value] : model->named_buffers()) out.values.emplace_back(name, value.clone());
  visit_quantizers(*model, [&](const NamedQuantizer& q) {
    if (q.quantizer->amax().defined()) out.values.emplace_back(q.name, q.quantizer->amax().clone());
  });
  return out;
}

void expect_same(const Trained& a, const Trained& b) {
  ASSERT_EQ(a.values.size(), b.values.size());
  for (std::size_t i = 0; i < a.values.size(); ++i)
    EXPECT_TRUE(bitwise_equal(a.values[i].second, b.values[i].second)) << a.values[i].first;
}

const std::string kResnet = R"({"widths": [8, 8, 16], "blocks": 2})";

TEST(CheckpointBlocks, MatchAResidualNetworkBitwise) {
  for (const Kind kind : {Kind::float_, Kind::live_bn, Kind::folded})
    for (const AmaxMode amax : {AmaxMode::frozen, AmaxMode::running}) {
      if (kind == Kind::float_ && amax == AmaxMode::running) continue;
      const Shape sample{3, 8, 8};
      const auto make = [&] { return test::built("resnet20", kResnet, sample, kind); };
      const Trained plain = trained(make(), "", amax, sample);
      for (const char* pattern : {"stage?_block?", "stage?", "stage2*", "*_conv1"})
        expect_same(trained(make(), pattern, amax, sample), plain);
    }
}

const std::string kDeep = R"({"widths": [8, 16, 32], "blocks": 3})";

TEST(CheckpointBlocks, UseLessMemory) {
  const Shape sample{3, 32, 32};
  for (const Kind kind : {Kind::float_, Kind::live_bn}) {
    const auto make = [&] { return test::built("resnet20", kDeep, sample, kind); };
    const Trained plain = trained(make(), "", AmaxMode::frozen, sample);
    const Trained blocks = trained(make(), "stage?_block?", AmaxMode::frozen, sample);
    EXPECT_LT(static_cast<double>(blocks.peak), 0.8 * static_cast<double>(plain.peak));
    const auto planned = make();
    const MemoryPlan before = plan_memory(*planned, {16, 3, 32, 32});
    set_checkpointing(*planned, "stage?_block?");
    const MemoryPlan after = plan_memory(*planned, {16, 3, 32, 32});
    EXPECT_LT(after.saved_activations, before.saved_activations / 2);
    EXPECT_LT(after.peak, before.peak);
    set_checkpointing(*planned, "");
    EXPECT_EQ(plan_memory(*planned, {16, 3, 32, 32}).saved_activations, before.saved_activations);
  }
}

/// Two blocks of linear, batch norm, ReLU and dropout.
std::shared_ptr<Sequential> dropout_net() {
  const RandomScope seed(3, 0);
  auto model = std::make_shared<Sequential>();
  for (const char* name : {"block1", "block2"}) {
    auto block = std::make_shared<Sequential>();
    block->add("fc", std::make_shared<Linear>(48, 48))
        .add("bn", std::make_shared<BatchNorm>(48))
        .add("relu", make_relu())
        .add("drop", make_dropout(0.3));
    model->add(name, block);
  }
  model->add("head", std::make_shared<Linear>(48, 10));
  return model;
}

TEST(CheckpointBlocks, DropoutDrawsTheSameRandomNumbers) {
  for (const bool quantized : {false, true}) {
    const auto make = [&] {
      auto model = dropout_net();
      if (!quantized) return model;
      (void)quantize(*model, QuantConfig::preset("int8"), {1, 48});
      visit_quantizers(*model, [](const NamedQuantizer& q) {
        if (q.quantizer->enabled()) q.quantizer->set_amax(Tensor::scalar(2));
      });
      return model;
    };
    const Trained plain = trained(make(), "", AmaxMode::frozen, {48});
    expect_same(trained(make(), "block?", AmaxMode::frozen, {48}), plain);
    expect_same(trained(make(), "block2.*", AmaxMode::frozen, {48}), plain);
  }
}

/// y = relu(w * x) of codes and of sums that cross into the block.
TEST(Checkpoint, PassesCodesAndSums) {
  const auto block = std::make_shared<Linear>(8, 8);
  const auto first = std::make_shared<Linear>(8, 8);
  auto holder = std::make_shared<Sequential>();
  holder->add("first", first).add("second", block);
  (void)quantize(*holder, QuantConfig::preset("int8"), {1, 8});
  visit_quantizers(*holder, [](const NamedQuantizer& q) {
    if (q.quantizer->enabled()) q.quantizer->set_amax(Tensor::scalar(2));
  });
  Module &one = holder->at("first"), &two = holder->at("second");
  const auto run = [&](bool checkpointed, bool codes) {
    holder->zero_grad();
    Variable x(test::images({8}, 6), true);
    Variable middle = ops::relu(one(x));
    EXPECT_NE(middle.accumulator(), nullptr);
    if (codes) middle = holder->at("second.input_quantizer")(middle);
    EXPECT_EQ(middle.quantized() != nullptr, codes);
    const BlockFunction run_two = [&](const std::vector<Variable>& in) { return two(in[0]); };
    const Variable y = checkpointed ? checkpoint(run_two, {middle}, two.parameters()) : two(middle);
    y.backward(test::images({8}, 6, 9));
    std::vector<Tensor> out{y.tensor(), x.grad()};
    for (const auto& parameter : holder->parameters()) out.push_back(parameter.grad());
    return out;
  };
  for (const bool codes : {false, true}) {
    const auto plain = run(false, codes), again = run(true, codes);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(bitwise_equal(plain[i], again[i])) << i;
  }
}

TEST(Checkpoint, IsAPlainCallWithoutGradients) {
  int runs = 0;
  const BlockFunction block = [&](const std::vector<Variable>& in) {
    ++runs;
    return ops::relu(in[0]);
  };
  const Variable y = checkpoint(block, {Variable(Tensor::full({3}, 2.0))}, {});
  EXPECT_FALSE(y.requires_grad());
  const Variable x(Tensor::full({3}, 2.0), true);
  const Variable z = checkpoint(block, {x}, {});
  EXPECT_EQ(runs, 2);
  z.backward(Tensor::full({3}, 1.0));
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{1, 1, 1}));
}

TEST(Checkpoint, RejectsModifiedInputs) {
  Tensor values = Tensor::full({3}, 2.0);
  const Variable x(values, true);
  const Variable y = checkpoint([](const std::vector<Variable>& in) { return ops::relu(in[0]); }, {x}, {});
  values.mutable_data<float>()[0] = 1;
  EXPECT_THROW(y.backward(Tensor::full({3}, 1.0)), ArgumentError);
}

TEST(Checkpoint, RejectsInvalidPatterns) {
  const auto model = test::built("resnet20", kResnet, {3, 16, 16}, Kind::float_);
  const auto message = [&](const char* pattern) {
    try {
      set_checkpointing(*model, pattern);
    } catch (const ArgumentError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(message("block*"), HasSubstr("'block*'"));
  EXPECT_EQ(message("stage1"), "accepted");
  auto nodes = std::vector<GraphNode>{{"a_1", make_relu(), {"input"}},
                                      {"a_2", make_relu(), {"a_1"}},
                                      {"b", std::make_shared<Add>(), {"a_1", "a_2"}}};
  Graph graph(std::move(nodes));
  EXPECT_THROW(set_checkpointing(graph, "a"), ArgumentError);
}

}  // namespace
}  // namespace fq::checkpoint_blocks_test
