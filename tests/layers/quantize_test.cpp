#include "fakequant/layers/quantize.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/layers/model/fold.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/model/trace.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/norm.h"
#include "fakequant/layers/modules/sequential.h"
#include "fakequant/reference/modelopt.h"
#include "layers/networks.h"

namespace fq::quantize_test {
namespace {

using namespace test;

TEST(Trace, ListsTheOperatorsOfAModelOnMeta) {
  auto model = residual_net();
  const TraceGraph graph = trace(*model, {2, 1, 8, 8});
  ASSERT_EQ(graph.nodes.size(), 11u);
  EXPECT_EQ(graph.nodes[4].op, "conv2d");
  EXPECT_EQ(graph.nodes[4].path, "conv2");
  EXPECT_EQ(graph.input(graph.nodes[4], 1).name, "conv2.weight");
  EXPECT_EQ(graph.values[static_cast<std::size_t>(graph.output)].shape, (Shape{2, 10}));
  EXPECT_TRUE(model->training());
  const Summary costs = summary(*model, {1, 1, 8, 8});
  EXPECT_EQ(costs.parameters, 8 * 9 + 16 + 8 * 72 + 8 + 16 + 90);
  EXPECT_EQ(costs.multiply_adds, 64 * 8 * 9 + 16 * 8 * 72 + 80);
}

TEST(Fold, KeepsTheFunctionAndDropsTheNorm) {
  auto model = residual_net();
  for (int i = 0; i < 3; ++i) (void)(*model)(Variable(random_tensor({16, 1, 8, 8}, 0, 1, 5 + i)));
  model->eval();
  const Tensor x = random_tensor({4, 1, 8, 8}, 0, 1);
  const auto before = (*model)(Variable(x)).tensor().to_vector<float>();
  EXPECT_EQ(fold_batch_norm(*model, {1, 1, 8, 8}), (std::vector<std::string>{"bn1", "bn2"}));
  const auto after = (*model)(Variable(x)).tensor().to_vector<float>();
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(before[i], after[i], 1e-5f);  // two float roundings apart
  EXPECT_EQ(model->at("bn1").type(), "identity");
}

TEST(Fold, UpdatesWeightRangesOfAQuantizedModel) {
  for (const char* preset : {"int8", "fp8", "int4_blockwise"}) {
    auto model = residual_net();
    quantize(*model, QuantConfig::preset(preset), {1, 1, 8, 8});
    for (int i = 0; i < 3; ++i) {
      const Tensor x = random_tensor({16, 1, 8, 8}, 0, 1, 5 + i);
      for (auto& q : named_quantizers(*model)) q.quantizer->set_quantizing(false);
      model->train();
      (void)(*model)(Variable(x)).tensor();
    }
    Variable gamma = dynamic_cast<BatchNorm&>(model->at("bn1")).weight();
    gamma.mutable_tensor().mutable_data<float>()[2] = -0.7f;
    const Tensor x = random_tensor({4, 1, 8, 8}, 0, 1);
    observe(*model, x);
    const auto before = (*model)(Variable(x)).tensor().to_vector<float>();
    auto& conv = dynamic_cast<QuantModule&>(model->at("conv1"));
    const Tensor range = conv.weight_quantizer()->amax().clone();
    EXPECT_EQ(fold_batch_norm(*model, {1, 1, 8, 8}), (std::vector<std::string>{"bn1", "bn2"}));
    EXPECT_FALSE(bitwise_equal(range, conv.weight_quantizer()->amax())) << preset;
    const auto after = (*model)(Variable(x)).tensor().to_vector<float>();
    // other roundings of the weights per tensor and block, and of the bias: a step of a code or two
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 0.05f) << preset;
  }
}

TEST(Quantize, ReportsFloatLayersOnce) {
  const auto parse = [](const std::string& more) {
    return QuantConfig::parse(
        R"({"preset": "int8", "rules": [{"pattern": "fc.input_quantizer", "num_bits": 12}])" + more + "}");
  };
  auto model = residual_net();
  const auto warnings = quantize(*model, parse(""), {1, 1, 8, 8});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'fc' multiplies dequantized floats"), std::string::npos) << warnings[0];
  auto rejected = residual_net();
  EXPECT_THROW(quantize(*rejected, parse(R"(, "strict": true)"), {1, 1, 8, 8}), ArgumentError);
  auto fine = residual_net();
  EXPECT_TRUE(
      quantize(*fine, QuantConfig::parse(R"({"preset": "int8", "strict": true})"), {1, 1, 8, 8}).empty());
  EXPECT_THROW((void)QuantConfig::parse(R"({"rules": [{"pattern": "*", "target": "tensorrt"}]})"),
               ArgumentError);
  EXPECT_THROW((void)QuantConfig::parse(R"({"preset": "int8", "strict": 1})"), ArgumentError);
}

TEST(Quantize, RejectsSumsThatCouldOverflowInt32) {
  std::vector<GraphNode> nodes;
  nodes.push_back({"fc", std::make_shared<Linear>(140000, 1), {"input"}});
  Graph model(std::move(nodes));
  try {
    quantize(model, QuantConfig::preset("int8"), {1, 140000});
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("int32 holds 132104"), std::string::npos) << error.what();
  }
}

TEST(Quantize, SharesOneQuantizerPerTensor) {
  auto model = residual_net();
  fold_batch_norm(*model, {1, 1, 8, 8});
  const auto warnings = quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  EXPECT_TRUE(warnings.empty());
  std::vector<std::string> names;
  for (const auto& q : named_quantizers(*model))
    if (q.quantizer->enabled()) names.push_back(q.name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.input_quantizer", "conv1.weight_quantizer",
                                             "conv2.input_quantizer", "conv2.weight_quantizer",
                                             "add.input_quantizer", "gap.input_quantizer",
                                             "fc.input_quantizer", "fc.weight_quantizer"}));
  const auto all = named_quantizers(*model);
  const auto shared = std::ranges::find(all, "conv2.input_quantizer", &NamedQuantizer::name);
  EXPECT_EQ(shared->aliases, (std::vector<std::string>{"add.input_quantizer_1"}));
  EXPECT_TRUE(shared->quantizer->descriptor().is_unsigned());
  EXPECT_EQ(shared->quantizer->params().zero_point, 0);
  const auto sum = std::ranges::find(all, "add.input_quantizer", &NamedQuantizer::name);
  EXPECT_FALSE(sum->quantizer->descriptor().is_unsigned());
  EXPECT_EQ(sum->quantizer->params().zero_point, 128);
  EXPECT_THROW((void)quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8}), ArgumentError);
}

TEST(Quantize, TargetSelectsSignsAndQuantizers) {
  auto model = residual_net();
  QuantConfig config = QuantConfig::preset("int8");
  config.target = Target::tensorrt;
  quantize(*model, config, {1, 1, 8, 8});
  for (const auto& q : named_quantizers(*model)) {
    EXPECT_FALSE(q.quantizer->descriptor().is_unsigned());
    EXPECT_EQ(q.quantizer->params().zero_point, 0);
  }
  auto bare = residual_net();
  config.target = Target::none;
  quantize(*bare, config, {1, 1, 8, 8});
  EXPECT_EQ(bare->at("add").type(), "add");
}

TEST(Quantize, RunsOnCodesFromTheInputToTheLogits) {
  auto model = residual_net();
  const Tensor x = random_tensor({8, 1, 8, 8}, 0, 1);
  for (int i = 0; i < 3; ++i) (void)(*model)(Variable(x));
  model->eval();
  const auto reference = (*model)(Variable(x)).tensor().to_vector<float>();
  fold_batch_norm(*model, {1, 1, 8, 8});
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  EXPECT_THROW((void)(*model)(Variable(x)), ArgumentError);
  observe(*model, x);
  EXPECT_TRUE(dynamic_cast<TensorQuantizer&>(model->at("conv1.input_quantizer")).descriptor().is_unsigned());
  const Variable y = (*model)(Variable(x));
  EXPECT_NE(y.accumulator(), nullptr);
  EXPECT_NE(y.accumulator(), nullptr);
  const auto logits = y.tensor().to_vector<float>();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    error += (logits[i] - reference[i]) * (logits[i] - reference[i]);
    size += reference[i] * reference[i];
  }
  EXPECT_LT(error, 1e-3 * size);  // 8-bit noise is about 1 % of the signal
  model->train();
  const auto training = (*model)(Variable(x)).tensor().to_vector<float>();
  EXPECT_EQ(training, logits);
}

TEST(Quantize, ComputesAllGradientsAndUsesUpdatedParameters) {
  auto model = residual_net();
  fold_batch_norm(*model, {1, 1, 8, 8});
  quantize(*model, QuantConfig::preset("w4a4"), {1, 1, 8, 8});
  const Tensor x = random_tensor({8, 1, 8, 8}, 0, 1);
  observe(*model, x);
  model->train();
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}, {8});
  for (int pass = 0; pass < 2; ++pass) {
    ops::cross_entropy((*model)(Variable(x)), labels).backward();
    for (const auto& [name, p] : model->named_parameters()) EXPECT_TRUE(p.grad().defined()) << name;
  }
  const auto before = (*model)(Variable(x)).tensor().to_vector<float>();
  Variable weight = dynamic_cast<Linear&>(model->at("fc")).weight();
  for (std::int64_t i = 0; i < weight.numel(); ++i) weight.mutable_tensor().mutable_data<float>()[i] *= -1.0f;
  EXPECT_NE((*model)(Variable(x)).tensor().to_vector<float>(), before);
}

TEST(Quantize, WarnsOfPatternsWithoutMatch) {
  auto model = residual_net();
  const auto config = QuantConfig::parse(
      R"({"preset": "int8", "rules": [{"pattern": "*conv3*", "enable": false}, {"pattern": "*fc*", "enable": false}]})");
  const auto warnings = quantize(*model, config, {1, 1, 8, 8});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'*conv3*' matches no quantizer"), std::string::npos);
  EXPECT_EQ(model->at("fc").type(), "linear");
  std::string pattern = "*";  // changed while it is in use
  EXPECT_EQ(visit_quantizers(*model, pattern, "test", [&](const NamedQuantizer&) { pattern = "-"; }),
            std::ssize(named_quantizers(*model)));
  EXPECT_THROW((void)disable_quantizer(*model, "nothing"), ArgumentError);
  EXPECT_EQ(disable_quantizer(*model, "*weight_quantizer"), 2);
}

TEST(Quantize, ReferenceArithmeticMatchesModelOpt) {
  const Tensor x = random_tensor({4, 3, 2, 2}, -2, 2);
  for (const auto& options :
       {QuantDescriptorOptions{.num_bits = 8, .axis = 1}, QuantDescriptorOptions{.num_bits = 4},
        QuantDescriptorOptions{.num_bits = {4, 3}}}) {
    TensorQuantizer quantizer{QuantDescriptor(options), Arithmetic::reference};
    const Tensor amax = options.axis.empty() ? Tensor::scalar(1.5) : Tensor::from({1.0f, 1.5f, 0.5f});
    quantizer.set_amax(amax);
    const Tensor shaped = options.axis.empty() ? amax : amax.reshape({1, 3, 1, 1});
    const Tensor expected = options.num_bits.is_integer()
                                ? fake_tensor_quant(x, shaped, {}, options.num_bits.bits(), false, false)
                                : scaled_e4m3(x, shaped);
    Variable input(x, true);
    const Variable y = quantizer(input);
    EXPECT_TRUE(bitwise_equal(y.tensor(), expected));
    y.backward(Tensor::full(x.shape(), 1.0));
    EXPECT_TRUE(bitwise_equal(input.grad(), Tensor::full(x.shape(), 1.0)));
  }
}

TEST(Quantize, UpdatesRunningRangesInTrainingOnly) {
  TensorQuantizer quantizer;
  quantizer.set_amax(Tensor::scalar(1.0));
  quantizer.update([](QuantParams& s) {
    s.running = true;
    s.momentum = 0.5;
  });
  Variable x(Tensor::from({-3.0f, 2.0f}), true);
  (void)quantizer(x);
  EXPECT_EQ(quantizer.amax().item(), 2.0);
  quantizer.eval();
  (void)quantizer(x);
  EXPECT_EQ(quantizer.amax().item(), 2.0);
}

TEST(Quantize, RejectsMismatchedRanges) {
  for (const char* rule : {R"({"pattern": "*weight_quantizer", "amax": [1, 2, 3]})",
                           R"({"pattern": "conv2.input_quantizer", "axis": 1, "amax": [1, 2, 3]})",
                           R"({"pattern": "fc.input_quantizer", "axis": 7})"}) {
    auto model = residual_net();
    const auto config = QuantConfig::parse(std::string(R"({"preset": "int8", "rules": [)") + rule + "]}");
    EXPECT_THROW((void)quantize(*model, config, {1, 1, 8, 8}), ArgumentError) << rule;
  }
}

TEST(Quantize, RejectsUnknownPresetsAndKeys) {
  EXPECT_THROW((void)QuantConfig::preset("int9"), ArgumentError);
  EXPECT_THROW((void)QuantConfig::preset("NVFP4_SVDQUANT_DEFAULT_CFG"), ArgumentError);
  EXPECT_THROW((void)QuantConfig::parse(R"({"presets": "int8"})"), ArgumentError);
  EXPECT_THROW((void)QuantConfig::parse("{"), ArgumentError);
  TensorQuantizer quantizer;
  EXPECT_THROW(quantizer.set_amax(Tensor::scalar(-1.0)), ArgumentError);
  EXPECT_THROW(quantizer.set_amax(Tensor::full({3}, 1.0)), ArgumentError);
  EXPECT_THROW(quantizer.load_calibrated_amax(), ArgumentError);
}

TEST(Quantize, ReportsAModelWithoutQuantizableLayers) {
  Linear lone(64, 10);
  try {
    (void)quantize(lone, QuantConfig::preset("int8"), {1, 64});
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("a single linear"), std::string::npos) << error.what();
  }
  Sequential within;
  within.add("fc", std::make_shared<Linear>(64, 10));
  EXPECT_TRUE(quantize(within, QuantConfig::preset("int8"), {1, 64}).empty());
  EXPECT_FALSE(named_quantizers(within).empty());
  Sequential none;
  none.add("relu", make_relu());
  const auto warnings = quantize(none, QuantConfig::preset("int8"), {1, 64});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("nothing is quantized"), std::string::npos) << warnings[0];
  Sequential off;
  off.add("fc", std::make_shared<Linear>(64, 10));
  EXPECT_TRUE(quantize(off,
                       QuantConfig::from_json(
                           {{"preset", "int8"}, {"rules", {{{"pattern", "*"}, {"enable", false}}}}}),
                       {1, 64})
                  .empty());
}

}  // namespace
}  // namespace fq::quantize_test
