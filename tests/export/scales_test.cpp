#include "fakequant/export/scales.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "layers/networks.h"

namespace fq::scales_test {
namespace {

using nlohmann::json;

/// A network with one linear layer of 2 x 6, calibrated.
std::shared_ptr<Graph> quantized_layer(const char* config) {
  auto model =
      std::make_shared<Graph>(std::vector<GraphNode>{{"fc", std::make_shared<Linear>(6, 2), {"input"}}});
  quantize(*model, QuantConfig::parse(config), {1, 6});
  auto& layer = dynamic_cast<QuantLinear&>(model->at("fc"));
  layer.quantized_weight().mutable_tensor().copy_from(
      Tensor::from({7.0f, 1.0f, 0.0f, 0.0f, 14.0f, 1.0f, -3.5f, 0.0f, 0.0f, 0.0f, 21.0f, 0.0f}, {2, 6}));
  for (const auto& [name, q, aliases] : named_quantizers(*model)) {
    if (!q->enabled() || !q->descriptor().needs_amax()) continue;
    q->observer().collect(name.starts_with("fc.weight") ? layer.quantized_weight().tensor()
                                                        : Tensor::full({1, 6}, 2.0));
    q->load_calibrated_amax();
  }
  return model;
}

json quantizer_scales(Module& model, const std::string& name) {
  const json all = scales_json(model);
  for (const auto& entry : all["quantizers"])
    if (entry["name"] == name) return entry;
  return nullptr;
}

TEST(Scales, BlocksAreListsInRowOrder) {
  auto model = quantized_layer(
      R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4, "block_sizes": {"-1": 4}}]})");
  const json weight = quantizer_scales(*model, "fc.weight_quantizer");
  EXPECT_EQ(weight["granularity"], json::parse(R"({"blocks": {"-1": 4}})"));
  EXPECT_EQ(weight["amax"], json({7.0, 14.0, 3.5, 21.0}));
  EXPECT_EQ(weight["scale"], json({1.0, 2.0, 0.5, 3.0}));
  EXPECT_FALSE(weight["dynamic"].get<bool>());
}

TEST(Scales, DynamicBlocksHaveATensorRangeOnlyIfRequired) {
  auto nvfp4 = quantized_layer(R"({"preset": "nvfp4"})");
  const json input = quantizer_scales(*nvfp4, "fc.input_quantizer");
  EXPECT_TRUE(input["dynamic"].get<bool>());
  EXPECT_EQ(input["amax"], 2.0);
  EXPECT_FALSE(input.contains("scale"));
  auto mx = quantized_layer(R"({"preset": "mxfp8"})");
  EXPECT_FALSE(quantizer_scales(*mx, "fc.input_quantizer").contains("amax"));
}

TEST(Scales, SequencesHaveOneEntryPerPart) {
  auto model = quantized_layer(R"({"rules": [{"pattern": "*weight_quantizer", "sequence":
      [{"num_bits": 4, "block_sizes": {"-1": 4}}, {"num_bits": [4, 3]}]}]})");
  EXPECT_EQ(quantizer_scales(*model, "fc.weight_quantizer.0")["scale"].size(), 4u);
  EXPECT_EQ(quantizer_scales(*model, "fc.weight_quantizer.1")["amax"], 21.0);
  const Tensor before = dynamic_cast<QuantLinear&>(model->at("fc")).quantized_weight().tensor().clone();
  const Tensor x = test::random_tensor({3, 6}, -2, 2);
  const Tensor y = (*model)(Variable(x)).tensor();
  fold_weight(*model);
  EXPECT_FALSE(quantizer_scales(*model, "fc.weight_quantizer.0")["enabled"].get<bool>());
  EXPECT_FALSE(
      bitwise_equal(dynamic_cast<QuantLinear&>(model->at("fc")).quantized_weight().tensor(), before));
  EXPECT_TRUE(bitwise_equal((*model)(Variable(x)).tensor(), y));
}

TEST(Scales, WriteTheActiveLearnedRanges) {
  auto model = quantized_layer(R"({"preset": "int8"})");
  learn_ranges(*model);
  Variable range = dynamic_cast<TensorQuantizer&>(model->at("fc.input_quantizer")).range().learned();
  range.mutable_tensor().mutable_data<float>()[0] = 3;
  EXPECT_EQ(quantizer_scales(*model, "fc.input_quantizer")["amax"], 3.0);
}

TEST(Scales, IncludeWeightShapesAndBiasCodes) {
  auto model = quantized_layer(R"({"preset": "int8"})");
  const json weight = quantizer_scales(*model, "fc.weight_quantizer");
  EXPECT_EQ(weight["shape"], json({2, 6}));
  EXPECT_EQ(weight["block"], json({1, 6}));
  EXPECT_EQ(weight["scale_shape"], json({2, 1}));
  EXPECT_FALSE(quantizer_scales(*model, "fc.input_quantizer").contains("shape"));
  const json layers = scales_json(*model)["layers"];
  ASSERT_EQ(layers.size(), 1u);
  EXPECT_EQ(layers[0]["name"], "fc");
  const auto& bias = dynamic_cast<QuantLinear&>(model->at("fc")).bias().tensor();
  for (std::size_t c = 0; c < 2; ++c)
    EXPECT_EQ(layers[0]["bias_codes"][c].get<float>(),
              std::nearbyint(bias.data<float>()[c] / layers[0]["sum_scale"][c].get<float>()));
  auto blocks = quantized_layer(
      R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4, "block_sizes": {"-1": 4}}]})");
  EXPECT_EQ(quantizer_scales(*blocks, "fc.weight_quantizer")["scale_shape"], json({2, 2}));
  EXPECT_EQ(quantizer_scales(*blocks, "fc.weight_quantizer")["block"], json({1, 4}));
  EXPECT_TRUE(scales_json(*blocks)["layers"].empty());
}

TEST(Scales, ClippedValuesAreCountedOnce) {
  auto model = quantized_layer(R"({"preset": "int8", "target": "none"})");
  dynamic_cast<QuantLinear&>(model->at("fc"))
      .quantized_weight()
      .mutable_tensor()
      .copy_from(Tensor::full({2, 6}, 14.5));  // the ranges are 14 and 21
  model->eval();
  ClipCounter counter(*model);
  {
    const RecordScope scope(counter);
    const NoGrad no_grad;
    for (int batch = 0; batch < 2; ++batch)
      (void)(*model)(Variable(Tensor::from({2.0f, 2.1f, -2.1f, 0.0f, -2.0f, 1e30f}, {1, 6}))).tensor();
  }
  const json all = scales_json(*model, counter.counts());
  json entries;
  for (const auto& entry : all["quantizers"]) entries[entry["name"].get<std::string>()] = entry;
  EXPECT_EQ(entries["fc.input_quantizer"]["clipped"], 6);
  EXPECT_EQ(entries["fc.input_quantizer"]["count"], 12);
  EXPECT_EQ(entries["fc.weight_quantizer"]["clipped"], 6);
  EXPECT_EQ(entries["fc.weight_quantizer"]["count"], 12);
  EXPECT_FALSE(entries["fc.output_quantizer"].contains("clipped"));
}

TEST(Scales, DoNotCountReluAsClipping) {
  auto model = test::residual_net();
  const Tensor x = test::random_tensor({4, 1, 8, 8}, -1, 1);
  quantize(*model, QuantConfig::parse(R"({"preset": "int8"})"), x.shape());
  test::observe(*model, x);
  for (const auto& [name, q, aliases] :
       named_quantizers(*model))  // codes differ a little from the floats observed
    if (q->enabled() && q->amax().rank() == 0) q->set_amax(Tensor::scalar(2 * q->amax().item()));
  ClipCounter counter(*model);
  {
    const RecordScope scope(counter);
    const NoGrad no_grad;
    (void)(*model)(Variable(x)).tensor();
  }
  for (const auto& [name, clip] : counter.counts()) {
    EXPECT_GT(clip.count, 0) << name;
    EXPECT_EQ(clip.clipped, 0) << name;
  }
}

}  // namespace
}  // namespace fq::scales_test
