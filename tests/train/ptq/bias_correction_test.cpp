#include <cmath>

#include "fakequant/core/error.h"
#include "fakequant/layers/modules/activation.h"
#include "fakequant/train/ptq/algorithms.h"
#include "train/ptq/layer_errors.h"

namespace fq::bias_correction_test {
namespace {

using namespace test;

/// Bound of the remaining mean of squared shifts. Biases have the accumulator's grid of s_x * s_w: each is
/// off by up to half a step before it is corrected and by as much, the other way, after it. Weights have 3
/// bits, inputs 8, whose unsigned steps are the finer ones.
double grid_bound(Module& model, const std::string& layer) {
  const auto ranges = [&](const char* which) {
    return dynamic_cast<TensorQuantizer&>(model.at(layer + which)).amax().to_vector<float>();
  };
  const double input_step = double(ranges(".input_quantizer")[0]) / 127;
  const auto weights = ranges(".weight_quantizer");
  double sum = 0;
  for (const float amax : weights) sum += std::pow(input_step * double(amax) / 3, 2);
  return sum / double(weights.size());
}

TEST(BiasCorrection, RemovesTheMeanShiftOfEachLayer) {
  for (const std::string name : {"cnn", "mlp"}) {
    auto model = calibrated(name, integers(3, 8));
    const auto report = ptq::correct_bias(*model, *digit_batches("train"), {.samples = 512});
    EXPECT_EQ(report.layers.size(), name == "cnn" ? 4u : 3u);
    for (const auto& layer : report.layers) {
      EXPECT_GT(layer.before, 0) << layer.path;
      EXPECT_LE(layer.after, grid_bound(*model, layer.path)) << name << " " << layer.path;
      EXPECT_LT(layer.after, layer.before) << name << " " << layer.path;
    }
  }
}

TEST(BiasCorrection, BringsLogitsCloserToFloat) {
  for (const std::string name : {"cnn", "mlp"}) {
    const auto exact = logits(*trained(name));
    auto model = calibrated(name, integers(3, 8));
    const double before = mean_squared_difference(logits(*model), exact);
    (void)ptq::correct_bias(*model, *digit_batches("train"), {.samples = 512});
    EXPECT_LT(mean_squared_difference(logits(*model), exact), before) << name;
  }
}

TEST(BiasCorrection, SkipsFloatLayersAndLayersWithoutBias) {
  std::vector<GraphNode> nodes;
  nodes.push_back({"flat", make_flatten(), {"input"}});
  nodes.push_back({"a", std::make_shared<Linear>(64, 8, false), {"flat"}});
  nodes.push_back({"b", std::make_shared<Linear>(8, 4), {"a"}});
  Graph model(std::move(nodes));
  (void)quantize(model, QuantConfig::parse(R"({"preset": "int8", "rules": [{"pattern": "b.*",
      "enable": false}]})"),
                 digit_shape());
  (void)calibrate(model, *digit_batches("test"));
  const auto report = ptq::correct_bias(model, *digit_batches("test"));
  EXPECT_TRUE(report.layers.empty());
  ASSERT_EQ(report.skipped.size(), 2u);
  EXPECT_EQ(report.skipped[0].reason, "has no bias");
  EXPECT_EQ(report.skipped[1].reason, "is not quantized");
}

TEST(BiasCorrection, RequiresACalibratedModel) {
  auto model = trained("mlp");
  (void)quantize(*model, integers(4, 8), digit_shape());
  EXPECT_THROW((void)ptq::correct_bias(*model, *digit_batches("test")), ArgumentError);
}

}  // namespace
}  // namespace fq::bias_correction_test
