#include "fakequant/export/scales.h"

#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "layers/networks.h"

namespace fq {
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
    q->collect(name.starts_with("fc.weight") ? layer.quantized_weight().tensor() : Tensor::full({1, 6}, 2.0));
    q->load_calibrated_amax();
  }
  return model;
}

json scales_of(Module& model, const std::string& name) {
  const json all = scales_json(model);
  for (const auto& entry : all["quantizers"])
    if (entry["name"] == name) return entry;
  return nullptr;
}

TEST(Scales, BlocksAreListsInTheOrderOfRows) {
  auto model = quantized_layer(
      R"({"rules": [{"pattern": "*weight_quantizer", "num_bits": 4, "block_sizes": {"-1": 4}}]})");
  const json weight = scales_of(*model, "fc.weight_quantizer");
  EXPECT_EQ(weight["granularity"], json::parse(R"({"blocks": {"-1": 4}})"));
  EXPECT_EQ(weight["amax"], json({7.0, 14.0, 3.5, 21.0}));
  EXPECT_EQ(weight["scale"], json({1.0, 2.0, 0.5, 3.0}));
  EXPECT_FALSE(weight["dynamic"].get<bool>());
}

TEST(Scales, DynamicBlocksHaveNoneAndTheirTensorsRangeOnlyWhereItCounts) {
  auto nvfp4 = quantized_layer(R"({"preset": "nvfp4"})");
  const json input = scales_of(*nvfp4, "fc.input_quantizer");
  EXPECT_TRUE(input["dynamic"].get<bool>());
  EXPECT_EQ(input["amax"], 2.0);
  EXPECT_FALSE(input.contains("scale"));
  auto mx = quantized_layer(R"({"preset": "mxfp8"})");
  EXPECT_FALSE(scales_of(*mx, "fc.input_quantizer").contains("amax"));
}

TEST(Scales, SequencesHaveOneEntryAPart) {
  auto model = quantized_layer(R"({"rules": [{"pattern": "*weight_quantizer", "sequence":
      [{"num_bits": 4, "block_sizes": {"-1": 4}}, {"num_bits": [4, 3]}]}]})");
  EXPECT_EQ(scales_of(*model, "fc.weight_quantizer.0")["scale"].size(), 4u);
  EXPECT_EQ(scales_of(*model, "fc.weight_quantizer.1")["amax"], 21.0);
  const Tensor before = dynamic_cast<QuantLinear&>(model->at("fc")).quantized_weight().tensor().clone();
  const Tensor x = test::random_tensor({3, 6}, -2, 2);
  const Tensor y = (*model)(Variable(x)).tensor();
  fold_weight(*model);
  EXPECT_FALSE(scales_of(*model, "fc.weight_quantizer.0")["enabled"].get<bool>());
  EXPECT_FALSE(
      bitwise_equal(dynamic_cast<QuantLinear&>(model->at("fc")).quantized_weight().tensor(), before));
  EXPECT_TRUE(bitwise_equal((*model)(Variable(x)).tensor(), y));
}

TEST(Scales, LearnedRangesAreThoseInForce) {
  auto model = quantized_layer(R"({"preset": "int8"})");
  learn_ranges(*model);
  Variable range = dynamic_cast<TensorQuantizer&>(model->at("fc.input_quantizer")).learned_amax();
  range.mutable_tensor().mutable_data<float>()[0] = 3;
  EXPECT_EQ(scales_of(*model, "fc.input_quantizer")["amax"], 3.0);
}

}  // namespace
}  // namespace fq
