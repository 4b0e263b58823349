#include <gtest/gtest.h>

#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/calibration/calibration_report.h"
#include "layers/networks.h"

namespace fq::quantizer_findings_test {
namespace {

using namespace test;
using Kind = QuantizerFinding::Kind;

const Tensor& images() {
  static const Tensor x = random_tensor({16, 1, 8, 8}, 0, 1);
  return x;
}

std::shared_ptr<Graph> calibrated_net() {
  auto model = residual_net();
  quantize(*model, QuantConfig::preset("int8"), {1, 1, 8, 8});
  DataLoader data(std::make_shared<TensorDataset>(images()), {.batch_size = 8, .shuffle = false});
  (void)calibrate(*model, data, {});
  return model;
}

TensorQuantizer& quantizer(Module& model, const std::string& path) {
  return dynamic_cast<TensorQuantizer&>(model.at(path));
}

/// The one finding that there is.
QuantizerFinding only(Module& model) {
  const auto found = quantizer_findings(model, images());
  EXPECT_EQ(found.size(), 1u);
  return found.empty() ? QuantizerFinding{} : found.front();
}

TEST(QuantizerFindings, AreEmptyForACalibratedNetwork) {
  auto model = calibrated_net();
  EXPECT_TRUE(quantizer_findings(*model, images()).empty());
  EXPECT_TRUE(model->training());
}

TEST(QuantizerFindings, ReportRangesThatUseOneCode) {
  auto model = calibrated_net();
  quantizer(*model, "fc.input_quantizer").set_amax(Tensor::scalar(1e4));
  const auto found = only(*model);
  EXPECT_EQ(found.kind, Kind::collapsed);
  EXPECT_EQ(found.quantizer, "fc.input_quantizer");
  EXPECT_FALSE(found.of_weight);
  EXPECT_NE(found.text().find("range is 10000"), std::string::npos) << found.text();
}

TEST(QuantizerFindings, ReportClipping) {
  auto model = calibrated_net();
  auto& first = quantizer(*model, "conv1.input_quantizer");
  first.set_amax(Tensor::scalar(0.01));
  const auto found = only(*model);
  EXPECT_EQ(found.kind, Kind::clipped);
  EXPECT_EQ(found.quantizer, "conv1.input_quantizer");
  EXPECT_EQ(found.of, 16 * 64);
  EXPECT_GT(found.count, found.of / 2);
}

TEST(QuantizerFindings, CountChannelsWithoutCodes) {
  auto model = calibrated_net();
  auto& weight = quantizer(*model, "fc.weight_quantizer");
  auto ranges = weight.amax().to_vector<float>();
  ranges[1] = ranges[4] = 1e4F;
  weight.set_amax(Tensor::from(ranges, {10}));
  const auto found = quantizer_findings(*model);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Kind::dead_channels);
  EXPECT_TRUE(found[0].of_weight);
  EXPECT_EQ(found[0].text(), "fc.weight_quantizer: 2 of 10 channels have no code but 0");
}

TEST(QuantizerFindings, IgnoreZeroChannels) {
  auto model = calibrated_net();
  auto* layer = dynamic_cast<QuantLinear*>(&model->at("fc"));
  ASSERT_NE(layer, nullptr);
  Variable weight = layer->weight();
  const std::int64_t inputs = weight.dim(1);
  auto* values = weight.mutable_tensor().mutable_data<float>();
  std::fill(values, values + inputs, 0.0F);
  EXPECT_TRUE(quantizer_findings(*model).empty());
}

TEST(QuantizerFindings, ReportAConstantInput) {
  auto model = calibrated_net();
  const auto found = quantizer_findings(*model, Tensor::full({4, 1, 8, 8}, 0.5));
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().kind, Kind::constant);
  EXPECT_EQ(found.front().quantizer, "conv1.input_quantizer");
}

}  // namespace
}  // namespace fq::quantizer_findings_test
