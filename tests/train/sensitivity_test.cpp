#include "fakequant/train/sensitivity/sensitivity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/layers/modules/sequential.h"
#include "fakequant/layers/quantizer/compress.h"
#include "fakequant/train/sensitivity/detail/owned_quantizers.h"
#include "layers/networks.h"
#include "train/networks.h"
#include "train/ptq/networks.h"

namespace fq::sensitivity_test {
namespace {

using namespace test;

DataLoader make_loader(const Tensor& x, const Tensor& y = {}, std::int64_t batch = 8) {
  return DataLoader(std::make_shared<TensorDataset>(x, y), {.batch_size = batch, .shuffle = false});
}

/// A residual block whose forward only its author knows, and which runs one layer twice.
class OwnBlock : public Module {
 public:
  OwnBlock()
      : first_(add_module("first", std::make_shared<Linear>(8, 8))),
        second_(add_module("second", std::make_shared<Linear>(8, 8))) {}

 protected:
  Variable forward(const Variable& x) override {
    const Variable y = ops::relu(first_(x));
    return ops::add(second_(ops::relu(second_(y))), x);
  }
  using Module::forward;

 private:
  Child<Linear> first_, second_;
};

std::shared_ptr<Module> own_model() {
  auto model = std::make_shared<Sequential>();
  model->add("in", std::make_shared<Linear>(6, 8));
  model->add("block1", std::make_shared<OwnBlock>());
  model->add("block2", std::make_shared<OwnBlock>());
  model->add("out", std::make_shared<Linear>(8, 10));
  return model;
}

void expect_same(const SensitivityReport& a, const SensitivityReport& b) {
  ASSERT_EQ(a.layers.size(), b.layers.size());
  EXPECT_EQ(a.reference.loss, b.reference.loss);
  EXPECT_EQ(a.samples, b.samples);
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_EQ(a.layers[i].layer, b.layers[i].layer);
    EXPECT_EQ(a.layers[i].damage.loss_change, b.layers[i].damage.loss_change) << a.layers[i].layer;
    EXPECT_EQ(a.layers[i].damage.accuracy_change, b.layers[i].damage.accuracy_change) << a.layers[i].layer;
    EXPECT_EQ(a.layers[i].damage.divergence, b.layers[i].damage.divergence) << a.layers[i].layer;
  }
}

/// Expects equal sensitivities with cached activations and with a full pass per layer.
SensitivityReport expect_exact(Module& model, DataLoader& data) {
  const auto cached = sensitivity(model, data), whole = sensitivity(model, data, {.cached = false});
  expect_same(cached, whole);
  EXPECT_EQ(whole.layer_runs, static_cast<std::int64_t>(whole.layers.size() + 1) * whole.pass_runs);
  EXPECT_EQ(cached.pass_runs, whole.pass_runs);
  EXPECT_LT(cached.layer_runs, whole.layer_runs);
  return cached;
}

TEST(Sensitivity, MatchesEvaluationWithOneQuantizedLayer) {
  auto model = trained("cnn");
  (void)quantize(*model, integers(4, 4), digit_shape());
  auto data = digit_batches("test");
  (void)calibrate(*model, *data);
  const auto report = expect_exact(*model, *data);
  ASSERT_EQ(report.layers.size(), 4U);
  EXPECT_TRUE(std::ranges::is_sorted(report.layers, std::greater<>{},
                                     [](const auto& layer) { return layer.damage.loss_change; }));
  const auto entries = named_quantizers(*model);
  const auto quantize_only = [&](const std::string& layer) {
    for (const auto& entry : entries) entry.quantizer->set_quantizing(entry.name.starts_with(layer + "."));
    return evaluate(*model, *data);
  };
  const Evaluation in_float = quantize_only("none of them");
  EXPECT_EQ(report.reference.loss, in_float.loss);
  EXPECT_EQ(report.reference.correct, in_float.correct);
  for (const auto& layer : report.layers) {  // in this network no two layers share a quantizer
    const Evaluation alone = quantize_only(layer.layer);
    EXPECT_EQ(layer.damage.loss_change, alone.loss - in_float.loss) << layer.layer;
    EXPECT_EQ(layer.damage.accuracy_change, alone.accuracy - in_float.accuracy) << layer.layer;
    EXPECT_GT(layer.damage.divergence, 0) << layer.layer;
    EXPECT_EQ(layer.bits, 4);
  }
  for (const auto& entry : entries) entry.quantizer->set_quantizing(true);
}

TEST(Sensitivity, QuantizesOneLayerWithSharedQuantizers) {
  auto model = residual_net();
  (void)quantize(*model, QuantConfig::preset("w4a4"), {1, 1, 8, 8});
  const Tensor x = random_tensor({20, 1, 8, 8}, -1, 1);
  DataLoader data = make_loader(x, labels(20));
  (void)calibrate(*model, data);
  const auto report = expect_exact(*model, data);
  EXPECT_EQ(report.layers.size(), 5U);  // conv1, conv2, add, gap, fc
  const auto add = std::ranges::find(report.layers, "add", &LayerSensitivity::layer);
  ASSERT_NE(add, report.layers.end());
  EXPECT_EQ(add->weights, 0);
  EXPECT_EQ(add->bits, 0);
  EXPECT_NE(add->format.find("input"), std::string::npos);
  auto& shared = dynamic_cast<TensorQuantizer&>(model->at("conv2.input_quantizer"));
  ASSERT_EQ(&shared, &model->at("add.input_quantizer_1"));
  for (auto& entry : named_quantizers(*model))
    if (!entry.name.starts_with("conv2")) entry.quantizer->set_enabled(false);
  model->replace("add.input_quantizer_1", detail::switched_off(shared));
  const Evaluation alone = evaluate(*model, data);
  const auto conv2 = std::ranges::find(report.layers, "conv2", &LayerSensitivity::layer);
  EXPECT_EQ(conv2->damage.loss_change, alone.loss - report.reference.loss);
}

TEST(Sensitivity, SupportsUserModules) {
  auto model = own_model();
  (void)quantize(*model, integers(3, 3), {1, 6});
  DataLoader data = make_loader(random_tensor({20, 6}, -1, 1), labels(20));
  (void)calibrate(*model, data);
  const auto report = expect_exact(*model, data);
  EXPECT_EQ(report.layers.size(), 6U);
  // 8 runs of layers in a pass, 3 batches. Behind: in 8, block1.first 7, .second 6 and 2 of them its own,
  // block2.first 4, .second 3, out 1.
  EXPECT_EQ(report.pass_runs, 3 * 8);
  EXPECT_EQ(report.layer_runs, 3 * (8 + 8 + 7 + 6 + 4 + 3 + 1));
}

TEST(Sensitivity, CostsOnePassAndTheRestAfterEachLayer) {
  auto mlp = trained("mlp");
  (void)quantize(*mlp, integers(8, 8), digit_shape());
  auto digits_test = digit_batches("test");
  (void)calibrate(*mlp, *digits_test);
  const auto chain = sensitivity(*mlp, *digits_test, {.samples = 256});
  EXPECT_EQ(chain.samples, 256);
  EXPECT_EQ(chain.reference.count, 256);
  EXPECT_EQ(chain.pass_runs, 2 * 3);
  EXPECT_EQ(chain.layer_runs, 2 * (3 + 3 + 2 + 1));

  auto resnet = built("resnet20", "{}", {3, 8, 8}, Kind::folded);
  DataLoader data = make_loader(images({3, 8, 8}, 4), labels(4), 4);
  const auto report = sensitivity(*resnet, data);
  const auto layers = static_cast<std::int64_t>(report.layers.size());
  EXPECT_GE(layers, 20 + 9 + 1);  // convolutions and fc, additions, pooling
  EXPECT_EQ(report.pass_runs, layers);
  // On average half of the layers follow a layer.
  EXPECT_LE(report.layer_runs, layers + layers * (layers + 1) / 2);
  expect_same(report, sensitivity(*resnet, data, {.cached = false}));
}

TEST(Sensitivity, ReportsOnlyDivergenceWithoutLabels) {
  auto model = residual_net();
  (void)quantize(*model, QuantConfig::preset("w2a2"), {1, 1, 8, 8});
  DataLoader data = make_loader(random_tensor({8, 1, 8, 8}, -1, 1));
  (void)calibrate(*model, data);
  const auto report = sensitivity(*model, data);
  EXPECT_EQ(report.reference.count, 0);
  EXPECT_TRUE(std::ranges::is_sorted(report.layers, std::greater<>{},
                                     [](const auto& layer) { return layer.damage.divergence; }));
  EXPECT_TRUE(std::isnan(report.layers[0].damage.loss_change));
  const auto json = report.to_json();
  EXPECT_EQ(json["kind"], "fakequant-sensitivity");
  EXPECT_TRUE(json["layers"][0]["loss_change"].is_null());
  EXPECT_EQ(json["layers"][0]["divergence"], report.layers[0].damage.divergence);
  EXPECT_EQ(json["layers"].size(), report.layers.size());
}

TEST(Sensitivity, RestoresTheModelAlsoAfterAnError) {
  auto model = residual_net();
  (void)quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  Tensor x = random_tensor({24, 1, 8, 8}, -1, 1);
  DataLoader data = make_loader(x, labels(24));
  EXPECT_THROW((void)sensitivity(*model, data), ArgumentError);  // not calibrated
  (void)calibrate(*model, data);
  const auto expect_intact = [&, logits = predict(*model, data)] {
    EXPECT_TRUE(model->training());
    EXPECT_TRUE(bitwise_equal(predict(*model, data), logits));
    for (const auto& entry : named_quantizers(*model)) EXPECT_TRUE(entry.quantizer->quantizing());
  };
  (void)sensitivity(*model, data);
  expect_intact();
  Tensor broken = x.clone();
  broken.mutable_data<float>()[9 * 64 + 5] = std::numeric_limits<float>::quiet_NaN();
  DataLoader with_nan = make_loader(broken, labels(24));
  try {
    (void)sensitivity(*model, with_nan);
    FAIL() << "a NaN is taken";
  } catch (const NumericError& error) {
    EXPECT_NE(std::string(error.what()).find("batch 1"), std::string::npos) << error.what();
  }
  expect_intact();
  const Tensor far = Tensor::full({24}, 11, DType::i64);
  DataLoader far_labels = make_loader(x, far);
  EXPECT_THROW((void)sensitivity(*model, far_labels), ArgumentError);
  expect_intact();
  EXPECT_THROW((void)sensitivity(*model, data, {.samples = -1}), ArgumentError);
  auto plain = residual_net();
  EXPECT_THROW((void)sensitivity(*plain, data), ArgumentError);
  (void)disable_quantizer(*model, "*");
  EXPECT_THROW((void)sensitivity(*model, data), ArgumentError);
  (void)enable_quantizer(*model, "*_quantizer");
}

TEST(Sensitivity, RejectsCompressedWeights) {
  auto model = trained("mlp");
  (void)quantize(*model, integers(8, 8), digit_shape());
  auto data = digit_batches("test");
  (void)calibrate(*model, *data);
  (void)compress(*model);
  EXPECT_THROW((void)sensitivity(*model, *data), ArgumentError);
}

TEST(WeightBits, CountEightBitScales) {
  const auto bits = [](const char* preset) {
    auto model = residual_net();
    (void)quantize(*model, QuantConfig::preset(preset), {1, 1, 8, 8});
    return weight_bits(model->at("fc"));
  };
  EXPECT_EQ(bits("int8"), 8);
  EXPECT_EQ(bits("w3a3"), 3);
  EXPECT_EQ(bits("int4_blockwise"), 4);
  EXPECT_EQ(bits("fp8"), 8);
  EXPECT_EQ(bits("nvfp4"), 4.5);
  EXPECT_EQ(bits("mxfp4"), 4.25);
  EXPECT_EQ(bits("mxfp6"), 6.25);
  EXPECT_EQ(weight_bits(residual_net()->at("fc")), kFloatWeightBits);
}

}  // namespace
}  // namespace fq::sensitivity_test
