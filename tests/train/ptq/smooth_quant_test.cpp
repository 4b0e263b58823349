#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/ptq/algorithms.h"
#include "layers/networks.h"
#include "train/ptq/networks.h"

namespace fq::smooth_quant_test {
namespace {

using namespace test;

TensorQuantizer& layer_input(Module& model, const std::string& path) {
  return dynamic_cast<TensorQuantizer&>(model.at(path + ".input_quantizer"));
}

struct Quality {
  double accuracy, loss, error;  // the last: mean squared difference of logits
};

Quality quality(Module& model, const std::vector<float>& exact) {
  const auto result = evaluate(model, *digit_batches("test"));
  return {result.accuracy, result.loss, mean_squared_difference(logits(model), exact)};
}

/// In INT8, one range for each tensor, with outlier channels of 50.
Quality int8_quality(const std::string& name, bool smooth) {
  auto model = with_outliers(name);
  (void)quantize(*model, QuantConfig::parse(R"({"rules": [{"pattern": "*quantizer", "num_bits": 8}]})"),
                 digit_shape());
  if (smooth) (void)ptq::smooth_quant(*model, *digit_batches("train"));
  (void)calibrate(*model, *digit_batches("train"));
  return quality(*model, logits(*trained(name)));
}

TEST(SmoothQuant, RecoversMostOfTheOutlierLoss) {
  for (const std::string name : {"cnn", "mlp"}) {
    const Quality floating = quality(*trained(name), logits(*trained(name)));
    const Quality nearest = int8_quality(name, false), smooth = int8_quality(name, true);
    const auto recovered = [&](double Quality::*of) {
      return (nearest.*of - smooth.*of) / (nearest.*of - floating.*of);
    };
    EXPECT_GT(floating.accuracy - nearest.accuracy, 0.05) << name;
    EXPECT_GE(recovered(&Quality::accuracy), 0.8) << name;
    EXPECT_GE(recovered(&Quality::loss), 0.8) << name;
    EXPECT_GE(recovered(&Quality::error), 0.8) << name;
  }
}

TEST(SmoothQuant, FoldsIntoThePreviousLayerIfPossible) {
  auto model = trained("cnn");
  const auto before = logits(*model);
  (void)quantize(*model, QuantConfig::preset("int8"), digit_shape());
  const auto report = ptq::smooth_quant(*model, *digit_batches("train"), {.alpha = 0.7, .samples = 256});
  std::vector<std::string> changed;
  for (const auto& layer : report.layers) {
    changed.push_back(layer.path);
    EXPECT_LE(layer.after, layer.before) << layer.path;
    EXPECT_FALSE(layer_input(*model, layer.path).params().pre_quant_scale.defined()) << layer.path;
  }
  EXPECT_EQ(changed, (std::vector<std::string>{"conv2", "conv3", "fc"}));
  ASSERT_EQ(report.skipped.size(), 1u);
  EXPECT_EQ(report.skipped[0].path, "conv1");
  EXPECT_EQ(report.skipped[0].reason, "has one input channel");
  const ptq::FloatScope float_scope(*model);
  EXPECT_LT(relative_difference(before, logits(*model)), 1e-5);
}

TEST(SmoothQuant, KeepsAPreQuantScaleIfItCannotFold) {
  auto model = trained("mlp");
  const auto before = logits(*model);
  (void)quantize(*model, QuantConfig::preset("int8"), digit_shape());
  (void)ptq::smooth_quant(*model, *digit_batches("train"));
  EXPECT_EQ(layer_input(*model, "fc1").params().pre_quant_scale.shape(), (Shape{64}));
  EXPECT_FALSE(layer_input(*model, "fc2").params().pre_quant_scale.defined());
  const ptq::FloatScope float_scope(*model);
  EXPECT_LT(relative_difference(before, logits(*model)), 1e-5);
}

TEST(SmoothQuant, SkipsATensorReadByAnAddition) {
  auto model = residual_net();
  (void)fold_batch_norm(*model, {1, 1, 8, 8});
  (void)quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  DataLoader data(std::make_shared<TensorDataset>(random_tensor({16, 1, 8, 8}, 0, 1)),
                  {.batch_size = 8, .shuffle = false});
  const auto report = ptq::smooth_quant(*model, data);
  ASSERT_EQ(report.skipped.size(), 2u);
  EXPECT_EQ(report.skipped[0].path, "conv1");
  EXPECT_EQ(report.skipped[1].path, "conv2");
  EXPECT_EQ(report.skipped[1].reason, "shares its input with a module that is not a weighted layer");
}

TEST(SmoothQuant, FollowsTheFormula) {
  std::vector<GraphNode> nodes;
  nodes.push_back({"fc", std::make_shared<Linear>(2, 1), {"input"}});
  Graph model(std::move(nodes));
  Variable weight = dynamic_cast<Linear&>(model.at("fc")).weight();
  weight.mutable_tensor().copy_from(Tensor::from({4.0f, -0.25f}, {1, 2}));
  (void)quantize(model, QuantConfig::preset("int8"), {1, 2});
  DataLoader data(std::make_shared<TensorDataset>(Tensor::from({1.0f, 9.0f, -16.0f, 3.0f}, {2, 2})),
                  {.batch_size = 1, .shuffle = false});
  (void)ptq::smooth_quant(model, data);
  // s = sqrt(16 / 4) = 2 and sqrt(9 / 0.25) = 6
  EXPECT_EQ(weight.tensor().to_vector<float>(), (std::vector<float>{8, -1.5}));
  EXPECT_EQ(layer_input(model, "fc").params().pre_quant_scale.to_vector<float>(),
            (std::vector<float>{0.5f, 1.0f / 6.0f}));
}

TEST(SmoothQuant, RejectsUnsupportedInput) {
  auto model = trained("mlp");
  (void)quantize(*model, QuantConfig::preset("int8"), digit_shape());
  auto data = digit_batches("test");
  EXPECT_THROW((void)ptq::smooth_quant(*model, *data, {.alpha = 1.5}), ArgumentError);
  EXPECT_THROW((void)ptq::smooth_quant(*model, *data, {.samples = -1}), ArgumentError);
  Tensor x = random_tensor({8, 1, 8, 8}, 0, 1);
  x.mutable_data<float>()[70] = std::numeric_limits<float>::infinity();
  DataLoader bad(std::make_shared<TensorDataset>(x), {.batch_size = 4, .shuffle = false});
  EXPECT_THROW((void)ptq::smooth_quant(*model, bad), NumericError);
  (void)calibrate(*model, *data);
  EXPECT_THROW((void)ptq::smooth_quant(*model, *data), ArgumentError);
}

}  // namespace
}  // namespace fq::smooth_quant_test
