#include "fakequant/layers/modules/recurrent.h"

#include <thread>

#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/core/io/state_dict.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/layers/model/float_operators.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/quant_recurrent.h"
#include "fakequant/layers/quantizer/compress.h"
#include "layers/networks.h"

namespace fq::recurrent_layers_test {
namespace {

using namespace test;
using Kind = Recurrent::Kind;

const Shape kSample{1, 7, 6};

/// Sequences [N, 7, 6] to 3 numbers: two layers both ways, and one layer behind them.
std::shared_ptr<Graph> sequence_net(Kind kind = Kind::lstm) {
  const RecurrentOptions deep{.in = 6, .hidden = 5, .bidirectional = true, .layers = 2};
  std::vector<GraphNode> nodes;
  nodes.push_back({"deep", std::make_shared<Recurrent>(kind, deep), {"input"}});
  nodes.push_back({"top", std::make_shared<Recurrent>(kind, 10, 4), {"deep"}});
  nodes.push_back({"flat", make_flatten(), {"top"}});
  nodes.push_back({"fc", std::make_shared<Linear>(28, 3), {"flat"}});
  return std::make_shared<Graph>(std::move(nodes));
}

std::shared_ptr<Graph> int8_net(Kind kind = Kind::lstm, const std::string& config = R"({"preset": "int8"})") {
  auto model = sequence_net(kind);
  quantize(*model, QuantConfig::parse(config), kSample);
  observe(*model, random_tensor({8, 7, 6}, -1, 1));
  return model;
}

Tensor run(Module& model, const Tensor& x) {
  const NoGrad no_grad;
  return model(Variable(x)).tensor();
}

const char* const kWeights[] = {
    "deep.weight_ih_l0", "deep.weight_hh_l0", "deep.weight_ih_l0_reverse", "deep.weight_hh_l0_reverse",
    "deep.weight_ih_l1", "deep.weight_hh_l1", "deep.weight_ih_l1_reverse", "deep.weight_hh_l1_reverse",
    "top.weight_ih",     "top.weight_hh"};

TEST(RecurrentLayers, UsePyTorchParameterNames) {
  const auto model = sequence_net();
  std::map<std::string, Shape> shapes;
  for (const auto& [name, value] : model->named_parameters()) shapes[name] = value.shape();
  for (const std::string name : kWeights) EXPECT_TRUE(shapes.contains(name)) << name;
  EXPECT_EQ(shapes["deep.weight_ih_l1_reverse"], (Shape{20, 10}));
  EXPECT_EQ(shapes["deep.bias_hh_l0"], (Shape{20}));
  EXPECT_EQ(shapes.size(), 22u);
}

TEST(RecurrentLayers, StackedLayersMatchSequentialLayers) {
  for (const auto kind : {Kind::lstm, Kind::gru, Kind::rnn_tanh, Kind::rnn_relu}) {
    Recurrent deep(kind, {.in = 4, .hidden = 3, .layers = 2, .dropout = 0.5}), low(kind, 4, 3),
        high(kind, 3, 3);
    std::map<std::string, Variable> own;
    for (const auto& [name, value] : deep.named_parameters()) own[name] = value;
    for (auto* layer : {&low, &high})
      for (auto& [name, value] : layer->named_parameters())
        Variable(value).mutable_tensor().copy_from(own.at(name + (layer == &low ? "_l0" : "_l1")).tensor());
    const Tensor x = random_tensor({2, 5, 4}, -1, 1), h = random_tensor({2, 2, 3}, -1, 1);
    deep.eval();
    EXPECT_TRUE(bitwise_equal(run(deep, x), run(high, run(low, x))));
    const auto states = [&](std::int64_t from) {
      Tensor out = Tensor::empty({2, 1, 3});
      for (std::int64_t n = 0; n < 2; ++n)
        out.slice(n, n + 1).copy_from(
            h.slice(n, n + 1).reshape({2, 3}).slice(from, from + 1).clone().reshape({1, 1, 3}));
      return Variable(out);
    };
    const NoGrad no_grad;
    const Variable below = low({Variable(x), states(0)});
    EXPECT_TRUE(bitwise_equal(deep({Variable(x), Variable(h)}).tensor(), high({below, states(1)}).tensor()));
    deep.train();
    EXPECT_FALSE(bitwise_equal(run(deep, x), run(high, run(low, x))));
  }
}

TEST(RecurrentLayers, EveryWeightHasAQuantizer) {
  auto model = int8_net();
  std::set<std::string> names;
  for (const auto& entry : named_quantizers(*model)) names.insert(entry.name);
  for (const std::string name : kWeights) EXPECT_TRUE(names.contains(name + ".weight_quantizer")) << name;
  EXPECT_TRUE(names.contains("deep.input_quantizer"));
  const auto& input = dynamic_cast<QuantRecurrent&>(model->at("top")).input_quantizers()[0]->descriptor();
  EXPECT_TRUE(input.dynamic() && input.is_unsigned());
  EXPECT_EQ(input.axis().values(), std::vector<int>{0});
  EXPECT_EQ(model->at("deep").type(), "quant_lstm");
  EXPECT_TRUE(float_operators(*model, kSample, Target::ort).empty());
}

/// With one range per sample, outputs do not depend on the other samples of the batch.
TEST(RecurrentLayers, SamplesDoNotDependOnTheirBatch) {
  auto model = int8_net();
  const Tensor x = random_tensor({6, 7, 6}, -1, 1, 3), all = run(*model, x);
  for (std::int64_t n = 0; n < 6; ++n)
    EXPECT_TRUE(bitwise_equal(run(*model, x.slice(n, n + 1).clone()), all.slice(n, n + 1).clone()));
  auto whole =
      int8_net(Kind::lstm, R"({"preset": "int8", "rules": [{"pattern": "*input_quantizer", "axis": null}]})");
  const Tensor together = run(*whole, x);
  int same = 0;  // the next layer rounds, so that some samples are equal
  for (std::int64_t n = 0; n < 6; ++n)
    same += bitwise_equal(run(*whole, x.slice(n, n + 1).clone()), together.slice(n, n + 1).clone()) ? 1 : 0;
  EXPECT_LT(same, 6);
}

TEST(RecurrentLayers, ComputeFloatsIfDisabled) {
  const Tensor x = random_tensor({6, 7, 6}, -1, 1, 3);
  auto model = int8_net();
  const Tensor codes = run(*model, x);
  disable_quantizer(*model, "*.input_quantizer");
  const Tensor weights_only = run(*model, x);
  EXPECT_FALSE(bitwise_equal(codes, weights_only));
  disable_quantizer(*model, "*");
  auto plain = sequence_net();
  const auto parameters = model->named_parameters(), own = plain->named_parameters();
  for (std::size_t i = 0; i < own.size(); ++i)
    Variable(own[i].second).mutable_tensor().copy_from(parameters[i].second.tensor());
  plain->eval();
  EXPECT_TRUE(bitwise_equal(run(*model, x), run(*plain, x)));
}

TEST(RecurrentLayers, WeightsOfOtherTargetsAreOnTheirGrids) {
  const Tensor x = random_tensor({6, 7, 6}, -1, 1, 3);
  const std::pair<Kind, const char*> cases[] = {{Kind::gru, R"({"preset": "int8"})"},
                                                {Kind::rnn_relu, R"({"preset": "int8"})"},
                                                {Kind::lstm, R"({"preset": "int8", "target": "tensorrt"})"},
                                                {Kind::lstm, R"({"preset": "int8_weight_only"})"},
                                                {Kind::lstm, R"({"preset": "fp8"})"},
                                                {Kind::lstm, R"({"preset": "w4a4"})"}};
  for (const auto& [kind, config] : cases) {
    auto model = int8_net(kind, config);
    const Tensor y = run(*model, x);
    disable_quantizer(*model, "fc.*");
    const Tensor on_grid = run(*model, x);
    fold_weight(*model);
    EXPECT_TRUE(bitwise_equal(run(*model, x), on_grid)) << config;
    EXPECT_EQ(y.shape(), (Shape{6, 3}));
  }
}

TEST(RecurrentLayers, TrainingMovesQuantizedWeights) {
  auto model = int8_net();
  model->train();
  const Variable loss = ops::cross_entropy((*model)(Variable(random_tensor({4, 7, 6}, -1, 1))),
                                           Tensor::from<std::int64_t>({0, 1, 2, 1}));
  loss.backward();
  for (const auto& [name, value] : model->named_parameters()) {
    ASSERT_TRUE(value.grad().defined()) << name;
    double sum = 0;
    for (const float g : value.grad().to_vector<float>()) sum += std::abs(double(g));
    EXPECT_GT(sum, 0) << name;
  }
}

TEST(RecurrentLayers, CompressionKeepsTheBits) {
  for (const char* config :
       {R"({"preset": "int8"})", R"({"preset": "w4a8"})", R"({"preset": "int4_blockwise"})"}) {
    auto model = int8_net(Kind::lstm, config);
    const Tensor x = random_tensor({6, 7, 6}, -1, 1, 3), before = run(*model, x);
    EXPECT_EQ(compress(*model).size(), 11u) << config;
    EXPECT_TRUE(bitwise_equal(run(*model, x), before)) << config;
    decompress(*model);
    EXPECT_TRUE(bitwise_equal(run(*model, x), before)) << config;
  }
}

TEST(RecurrentLayers, RoundTripThroughAFile) {
  auto model = int8_net();
  const Tensor x = random_tensor({6, 7, 6}, -1, 1, 3);
  StateDict state;
  save_quantizers(*model, state);
  auto other = sequence_net();
  quantize(*other, QuantConfig::preset("int8"), kSample);
  load_quantizers(*other, state);
  const auto from = model->named_parameters(), to = other->named_parameters();
  for (std::size_t i = 0; i < to.size(); ++i)
    Variable(to[i].second).mutable_tensor().copy_from(from[i].second.tensor());
  other->eval();
  EXPECT_TRUE(bitwise_equal(run(*other, x), run(*model, x)));
}

TEST(RecurrentLayers, RejectUnsupportedInput) {
  auto model = int8_net();
  set_quantizer_attributes(*model, "top.input_quantizer", {{"num_bits", 4}});
  EXPECT_THROW((void)run(*model, random_tensor({1, 7, 6}, -1, 1)), ArgumentError);
  EXPECT_THROW(Recurrent(Kind::lstm, {.in = 1, .hidden = 1, .layers = 0}), ArgumentError);
  EXPECT_THROW(Recurrent(Kind::lstm, {.in = 1, .hidden = 1, .dropout = 1.5}), ArgumentError);
}

TEST(ThreadsRecurrentLayers, ConcurrentReadersGetTheSameBits) {
  auto model = int8_net();
  const Tensor x = random_tensor({8, 7, 6}, -1, 1, 9);
  const auto evaluate = [&] {
    detail::set_threads(1);
    return run(*model, x).to_vector<float>();
  };
  std::vector<std::vector<float>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) result = evaluate();
    });
  for (auto& thread : threads) thread.join();
  const auto expected = evaluate();
  for (const auto& result : results) EXPECT_EQ(result, expected);
}

}  // namespace
}  // namespace fq::recurrent_layers_test
