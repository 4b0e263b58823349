#include "fakequant/train/ptq/bias_correction.h"

#include "fakequant/core/error.h"
#include "fakequant/layers/activation.h"
#include "train/ptq/layer_errors.h"

namespace fq {
namespace {

using namespace test;

TEST(BiasCorrection, TakesTheMeanShiftOutOfEachLayer) {
  for (const std::string name : {"cnn", "mlp"}) {
    auto model = calibrated(name, integers(3, 8));
    const auto report = ptq::correct_bias(*model, *digit_batches("train"), {.samples = 512});
    EXPECT_EQ(report.layers.size(), name == "cnn" ? 4u : 3u);
    for (const auto& layer : report.layers) {
      EXPECT_GT(layer.before, 0) << layer.path;
      // what stays is the rounding of the bias to the accumulator's grid
      EXPECT_LT(layer.after, 1e-2 * layer.before) << name << " " << layer.path;
    }
  }
}

TEST(BiasCorrection, BringsLogitsNearerToThoseInFloat) {
  for (const std::string name : {"cnn", "mlp"}) {
    const auto exact = logits(*trained(name));
    auto model = calibrated(name, integers(3, 8));
    const auto error = [&] {
      const auto now = logits(*model);
      double sum = 0;
      for (std::size_t i = 0; i < now.size(); ++i)
        sum += (double(now[i]) - double(exact[i])) * (double(now[i]) - double(exact[i]));
      return sum;
    };
    const double before = error();
    (void)ptq::correct_bias(*model, *digit_batches("train"), {.samples = 512});
    EXPECT_LT(error(), before) << name;
  }
}

TEST(BiasCorrection, LeavesFloatLayersAndThoseWithoutABiasAlone) {
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

TEST(BiasCorrection, NeedsACalibratedModel) {
  auto model = trained("mlp");
  (void)quantize(*model, integers(4, 8), digit_shape());
  EXPECT_THROW((void)ptq::correct_bias(*model, *digit_batches("test")), ArgumentError);
}

}  // namespace
}  // namespace fq
