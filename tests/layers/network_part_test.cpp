// Networks that are parts of others: names that are paths, the edges of the whole, patterns that match
// nothing.

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/model/graph.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/layers/modules/sequential.h"
#include "fakequant/layers/quantize.h"

namespace fq::network_part_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kNodes = R"([
    {"name": "layers.0.up", "type": "linear", "options": {"out_features": 8}},
    {"name": "layers.0.act", "type": "relu"},
    {"name": "layers.0.down", "type": "linear", "options": {"out_features": 4}},
    {"name": "layers.0.add", "type": "add", "inputs": ["layers.0.down", "input"]},
    {"name": "head", "type": "linear", "options": {"out_features": 3}}])";

std::shared_ptr<Module> network() { return build_model(ModelSpec::parse(kNodes), {4}); }

QuantConfig int8(const std::string& rules) {
  return QuantConfig::parse(R"({"preset": "int8", "rules": [)" + rules + "]}");
}

std::vector<std::string> switched_off(Module& model) {
  std::vector<std::string> out;
  for (const auto* layer : {"layers.0.up", "layers.0.down", "head"}) {
    const auto* quant = dynamic_cast<QuantModule*>(&model.at(layer));
    if (quant == nullptr || !quant->weight_quantizer()->enabled()) out.emplace_back(layer);
  }
  return out;
}

TEST(NetworkPart, NamesNodesByPath) {
  const auto model = network();
  EXPECT_THAT(quantize(*model, int8(R"({"pattern": "layers.0.*", "enable": false})"), {1, 4}), ElementsAre());
  EXPECT_THAT(switched_off(*model), ElementsAre("layers.0.up", "layers.0.down"));
  EXPECT_EQ(model->at("layers.0.act").type(), "relu");
  const Tensor x = Tensor::from<float>({0.5F, -1, 2, 1}, {1, 4});
  EXPECT_EQ(network()->named_parameters()[0].first, "layers.0.up.weight");
  (void)disable_quantizer(*model, "*");
  EXPECT_EQ((*model)(Variable(x)).shape(), Shape({1, 3}));
}

TEST(NetworkPart, RejectsTheNameOfAnotherPart) {
  auto inner = std::make_shared<Sequential>();
  inner->add("b", std::make_shared<Linear>(4, 4));
  std::vector<GraphNode> nodes{{"a", inner, {"input"}}, {"a.b", std::make_shared<Linear>(4, 4), {"a"}}};
  try {
    const Graph graph(nodes);
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'a.b' is a node and a part of another node"));
  }
}

TEST(NetworkPart, UsesTheEdgesOfTheWholeNetwork) {
  const std::string rules =
      R"({"pattern": "@first*", "enable": false}, {"pattern": "@last*", "enable": false})";
  for (const auto& [first, last] :
       std::vector<std::pair<bool, bool>>{{true, true}, {true, false}, {false, true}, {false, false}}) {
    const auto model = network();
    NetworkPart part{.has_first = first, .has_last = last, .unmatched = {}, .names = {}};
    (void)quantize(*model, int8(rules), {1, 4}, part);
    std::vector<std::string> expected;
    if (first) expected.emplace_back("layers.0.up");
    if (last) expected.emplace_back("head");
    EXPECT_EQ(switched_off(*model), expected);
  }
}

TEST(NetworkPart, ReportsPatternsThatMatchNothing) {
  const auto model = network();
  NetworkPart part;
  const auto warnings = quantize(
      *model, int8(R"({"pattern": "*other*", "enable": false}, {"pattern": "head.*", "enable": true})"),
      {1, 4}, part);
  EXPECT_THAT(warnings, ElementsAre());
  EXPECT_THAT(part.unmatched, ElementsAre("*other*"));
  EXPECT_THAT(part.names, Contains("layers.0.down.weight_quantizer"));
}

TEST(NetworkPart, ModelOptExceptionsMayMatchNothing) {
  const auto config = QuantConfig::parse(R"({"quant_cfg": {
      "*weight_quantizer": {"num_bits": 8, "axis": 0}, "*input_quantizer": {"num_bits": 8, "axis": null},
      "*lm_head*": {"enable": false}, "*router*": {"enable": false}, "*visual*": {"num_bits": 4}}})");
  const auto warnings = quantize(*network(), config, {1, 4});
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("'*visual*' matches no quantizer")));
}

TEST(NetworkPart, DeclaresLearnedRangesBeforeCalibration) {
  const auto model = network();
  (void)quantize(*model, QuantConfig::preset("w4a4"), {1, 4});
  const auto before = model->named_parameters().size();
  EXPECT_EQ(learn_ranges_once_calibrated(*model, true, false, AmaxGradient::lsq),
            4);  // "input" has two readers
  EXPECT_EQ(learn_ranges_once_calibrated(*model, false, true, AmaxGradient::lsq), 3);
  EXPECT_EQ(model->named_parameters().size(), before);
  for (const auto& entry : named_quantizers(*model))
    if (entry.quantizer->enabled()) entry.quantizer->set_amax(Tensor::scalar(1.0));
  EXPECT_GE(model->named_parameters().size(), before + 7);
  EXPECT_EQ(learn_ranges_once_calibrated(*network(), true, true, AmaxGradient::lsq), 0);
}

}  // namespace
}  // namespace fq::network_part_test
