#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/ptq/algorithms.h"
#include "train/ptq/layer_errors.h"

namespace fq::awq_test {
namespace {

using namespace test;

QuantConfig blocks(int length) {
  return QuantConfig::parse(R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4,
      "block_sizes": {"-1": )" +
                            std::to_string(length) + "}}]}");
}

TEST(AwqLite, ImprovesOutputsAndKeepsTheFloatNetwork) {
  for (const std::string name : {"cnn", "mlp"}) {
    const auto exact = logits(*trained(name));
    auto nearest = calibrated(name, integers(3, 0)), model = trained(name);
    (void)quantize(*model, integers(3, 0), digit_shape());
    const auto report = ptq::awq_lite(*model, *digit_batches("train"));
    bool better = false;
    for (const auto& layer : report.layers) {
      EXPECT_LE(layer.after, layer.before) << layer.path;
      better = better || layer.after < layer.before;
    }
    EXPECT_TRUE(better) << name;
    {
      const ptq::FloatScope float_scope(*model);
      EXPECT_LT(relative_difference(exact, logits(*model)), 1e-5) << name;
    }
    (void)calibrate(*model, *digit_batches("train"), {.samples = 512});
    EXPECT_LT(mean_squared_difference(logits(*model), exact),
              mean_squared_difference(logits(*nearest), exact))
        << name;
  }
}

TEST(AwqLite, DividesTheInputOfADisabledQuantizer) {
  auto model = trained("mlp");
  (void)quantize(*model, blocks(16), digit_shape());
  (void)ptq::awq_lite(*model, *digit_batches("train"));
  const auto& input = *dynamic_cast<QuantLinear&>(model->at("fc1")).input_quantizers()[0];
  EXPECT_FALSE(input.enabled());
  EXPECT_TRUE(input.params().pre_quant_scale.defined());
}

TEST(AwqLite, SupportsTwoPassWeightRanges) {
  auto model = trained("mlp");
  (void)quantize(*model, QuantConfig::parse(R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4,
      "axis": 0, "calib_method": "two_pass_mse"}]})"),
                 digit_shape());
  EXPECT_FALSE(ptq::awq_lite(*model, *digit_batches("train")).layers.empty());
}

TEST(AwqLite, ReportMatchesSearchAndCalibration) {
  auto model = trained("mlp");
  (void)quantize(*model, blocks(16), digit_shape());
  const auto report = ptq::awq_lite(*model, *digit_batches("train"));
  (void)calibrate(*model, *digit_batches("train"));
  const auto clipped = ptq::awq_clip(*model, *digit_batches("train"));
  // outputs of the last layer alone have not been divided for a layer behind them
  EXPECT_EQ(clipped.layers.back().path, "fc3");
  for (const auto& layer : report.layers)
    if (layer.path == "fc3") {
      EXPECT_NEAR(clipped.layers.back().before, layer.after, 1e-3 * layer.after);
    }
}

TEST(AwqClip, LowersRangesIfOutputsImprove) {
  for (const auto& config : {integers(3, 0), blocks(16)}) {
    auto original = trained("mlp"), model = calibrated("mlp", config);
    const auto before = HeldOutErrors(*original, multiplied_weights(*model)).errors;
    const auto weights = model->named_parameters();
    std::vector<Tensor> values;
    for (const auto& [path, parameter] : weights) values.push_back(parameter.tensor().clone());
    const auto report = ptq::awq_clip(*model, *digit_batches("train"));
    EXPECT_EQ(report.layers.size(), 3u);
    const auto after = HeldOutErrors(*original, multiplied_weights(*model)).errors;
    for (const auto& [path, error] : before) EXPECT_LT(after.at(path), error) << path;
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_TRUE(bitwise_equal(values[i], weights[i].second.tensor())) << weights[i].first;
  }
}

TEST(AwqClip, RespectsTheLowestShare) {
  auto whole = calibrated("cnn", integers(2, 0)), model = calibrated("cnn", integers(2, 0));
  (void)ptq::awq_clip(*model, *digit_batches("train"), {.lowest = 0.7, .step = 0.1, .samples = 128});
  for (const auto& layer : list_layers(*whole)) {
    const auto range = [&](Module& m) {
      return dynamic_cast<TensorQuantizer&>(m.at(layer.path + ".weight_quantizer")).amax().to_vector<float>();
    };
    const auto before = range(*whole), after = range(*model);
    for (std::size_t c = 0; c < before.size(); ++c) {
      const float share = after[c] / before[c];
      EXPECT_GT(share, 0.699f) << layer.path;
      EXPECT_NEAR(share * 10, std::round(share * 10), 1e-4) << layer.path;
    }
  }
}

TEST(AwqClip, KeepsLowBitScales) {
  const auto model = calibrated("mlp", QuantConfig::parse(R"({"rules": [{"pattern": "*weight_quantizer",
      "num_bits": 4, "block_sizes": {"-1": 16, "scale_bits": [4, 3]}}]})"));
  const auto report = ptq::awq_clip(*model, *digit_batches("test"));
  ASSERT_EQ(report.skipped.size(), 3u);
  EXPECT_EQ(report.skipped[0].reason, "has scales of few bits");
}

TEST(Awq, RejectsOptionsOutOfRangeAndAWrongOrder) {
  auto model = trained("mlp");
  auto data = digit_batches("test");
  (void)quantize(*model, integers(4, 0), digit_shape());
  EXPECT_THROW((void)ptq::awq_lite(*model, *data, {.alpha_step = 0}), ArgumentError);
  EXPECT_THROW((void)ptq::awq_clip(*model, *data), ArgumentError);
  (void)calibrate(*model, *data);
  EXPECT_THROW((void)ptq::awq_lite(*model, *data), ArgumentError);
  EXPECT_THROW((void)ptq::awq_clip(*model, *data, {.lowest = 0}), ArgumentError);
  EXPECT_THROW((void)ptq::awq_clip(*model, *data, {.step = 0}), ArgumentError);
}

}  // namespace
}  // namespace fq::awq_test
