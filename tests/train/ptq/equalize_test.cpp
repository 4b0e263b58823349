#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/ptq/algorithms.h"
#include "layers/networks.h"
#include "train/ptq/networks.h"

namespace fq::equalize_test {
namespace {

using namespace test;

TEST(Equalize, KeepsFloatLogitsAndBalancesRanges) {
  for (const std::string name : {"cnn", "mlp"})
    for (const bool outliers : {false, true}) {
      auto model = outliers ? with_outliers(name) : trained(name);
      const auto before = logits(*model);
      const auto report = ptq::equalize(*model, digit_shape());
      EXPECT_EQ(report.layers.size(), name == "cnn" ? 3u : 2u) << name;
      for (const auto& layer : report.layers)
        if (outliers) {
          EXPECT_LT(layer.after, layer.before) << name << " " << layer.path;
        }
      EXPECT_LT(relative_difference(before, logits(*model)), 1e-5) << name;
    }
}

TEST(Equalize, SetsBothRangesToTheGeometricMean) {
  std::vector<GraphNode> nodes;
  nodes.push_back({"a", std::make_shared<Linear>(2, 2), {"input"}});
  nodes.push_back({"relu", make_relu(), {"a"}});
  nodes.push_back({"b", std::make_shared<Linear>(2, 1), {"relu"}});
  Graph model(std::move(nodes));
  auto &a = dynamic_cast<Linear&>(model.at("a")), &b = dynamic_cast<Linear&>(model.at("b"));
  Variable wa = a.weight(), ba = a.bias(), wb = b.weight();
  wa.mutable_tensor().copy_from(Tensor::from({8.0f, -4.0f, 0.0f, 0.0f}, {2, 2}));
  ba.mutable_tensor().copy_from(Tensor::from({2.0f, 3.0f}, {2}));
  wb.mutable_tensor().copy_from(Tensor::from({-0.5f, 1.0f}, {1, 2}));
  (void)ptq::equalize(model, {1, 2});
  // s = sqrt(8 / 0.5) = 4; the second channel is made by zeros and stays
  EXPECT_EQ(wa.tensor().to_vector<float>(), (std::vector<float>{2, -1, 0, 0}));
  EXPECT_EQ(ba.tensor().to_vector<float>(), (std::vector<float>{0.5, 3}));
  EXPECT_EQ(wb.tensor().to_vector<float>(), (std::vector<float>{-2, 1}));
}

TEST(Equalize, RecoversPerTensorRangesWithOutliers) {
  auto model = with_outliers("cnn");
  const double floating = accuracy(*model);
  QuantConfig config = QuantConfig::parse(R"({"rules": [{"pattern": "*quantizer", "num_bits": 8}]})");
  (void)quantize(*model, config, digit_shape());
  (void)ptq::equalize(*model, digit_shape());
  (void)calibrate(*model, *digit_batches("train"), {.samples = 512});
  EXPECT_GT(accuracy(*model), floating - 0.1);
}

TEST(Equalize, StopsAtBranchesAndBatchNorm) {
  auto model =
      residual_net();  // batch norm after each convolution; an addition reads the pooled features too
  const auto report = ptq::equalize(*model, {1, 1, 8, 8});
  EXPECT_TRUE(report.layers.empty());
  EXPECT_EQ(report.skipped.size(), 3u);
}

TEST(Equalize, RejectsCalibratedModelsAndOptionsOutOfRange) {
  auto model = trained("mlp");
  EXPECT_THROW((void)ptq::equalize(*model, digit_shape(), {.iterations = 0}), ArgumentError);
  EXPECT_THROW((void)ptq::equalize(*model, digit_shape(), {.tolerance = -1}), ArgumentError);
  (void)quantize(*model, QuantConfig::preset("int8"), digit_shape());
  (void)calibrate(*model, *digit_batches("test"));
  EXPECT_THROW((void)ptq::equalize(*model, digit_shape()), ArgumentError);
}

}  // namespace
}  // namespace fq::equalize_test
