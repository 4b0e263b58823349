// Detection of the first and the last layer of a network, and config rules for them.

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/layers/detail/layer_roles.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"

namespace fq::edge_layers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<Module> built(const std::string& nodes) {
  return build_model(ModelSpec::parse(nodes), {4, 8, 8});
}

detail::EdgeLayers edges(const std::string& nodes) {
  const auto model = built(nodes);
  return detail::edge_layers(trace(*model, {1, 4, 8, 8}));
}

constexpr const char* kConv =
    R"("type": "conv2d", "options": {"out_channels": 4, "kernel": 3, "padding": 1})";

std::string conv(const std::string& name, const std::string& inputs = "") {
  return R"({"name": ")" + name + R"(", )" + kConv + (inputs.empty() ? "" : R"(, "inputs": )" + inputs) + "}";
}

TEST(EdgeLayers, AreTheEndsOfAChain) {
  const auto found =
      edges("[" + conv("a") + R"(, {"type": "relu"}, )" + conv("b") +
            R"(, {"type": "flatten"}, {"name": "c", "type": "linear", "options": {"out_features": 3}},
                               {"type": "softmax"}])");
  EXPECT_THAT(found.first, ElementsAre("a"));
  EXPECT_THAT(found.last, ElementsAre("c"));
  EXPECT_THAT(found.role_names("a"), ElementsAre("@first"));
  EXPECT_THAT(found.role_names("b"), ElementsAre());
}

TEST(EdgeLayers, IncludeASingleLayer) {
  const auto found = edges("[" + conv("only") + "]");
  EXPECT_THAT(found.role_names("only"), ElementsAre("@first", "@last"));
}

TEST(EdgeLayers, RecurrentLayersHaveWeights) {
  const auto model = build_model(ModelSpec::parse(R"([
      {"name": "rows", "type": "lstm", "options": {"hidden_size": 4}},
      {"name": "more", "type": "gru", "options": {"hidden_size": 4}}, {"type": "flatten"},
      {"name": "out", "type": "linear", "options": {"out_features": 3}}])"),
                                 {4, 8});
  const auto found = detail::edge_layers(trace(*model, {1, 4, 8}));
  EXPECT_THAT(found.first, ElementsAre("rows"));
  EXPECT_THAT(found.last, ElementsAre("out"));
}

TEST(EdgeLayers, IncludeBranchesAtBothEnds) {
  const auto found = edges("[" + conv("left", R"(["input"])") + "," + conv("right", R"(["input"])") +
                           R"(, {"name": "sum", "type": "add", "inputs": ["left", "right"]}, )" +
                           conv("head1", R"(["sum"])") + "," + conv("head2", R"(["sum"])") +
                           R"(, {"type": "concat", "inputs": ["head1", "head2"]}])");
  EXPECT_THAT(found.first, ElementsAre("left", "right"));
  EXPECT_THAT(found.last, ElementsAre("head1", "head2"));
}

TEST(EdgeLayers, ResidualStreamHasOneEnd) {
  const auto found = edges("[" + conv("stem") + "," + conv("one") +
                           R"(, {"name": "s1", "type": "add", "inputs": ["one", "stem"]}, )" + conv("two") +
                           R"(, {"name": "s2", "type": "add", "inputs": ["two", "s1"]}])");
  EXPECT_THAT(found.first, ElementsAre("stem"));
  EXPECT_THAT(found.last, ElementsAre("two"));
}

TEST(EdgeLayers, InputSkipKeepsTheFirstLayer) {
  const auto found = edges("[" + conv("a") + R"(, {"name": "s", "type": "add", "inputs": ["a", "input"]}, )" +
                           conv("b") + "]");
  EXPECT_THAT(found.first, ElementsAre("a"));
  EXPECT_THAT(found.last, ElementsAre("b"));
}

TEST(EdgeLayers, ConfigRulesSelectThem) {
  const auto model = built("[" + conv("a") + R"(, {"type": "relu"}, )" + conv("b") +
                           R"(, {"type": "relu"}, )" + conv("c") + "]");
  const auto warnings = quantize(*model, QuantConfig::parse(R"({"preset": "w2a2", "rules": [
      {"pattern": "@first.*", "num_bits": 8}, {"pattern": "@last.weight_quantizer", "num_bits": 4}]})"),
                                 {1, 4, 8, 8});
  EXPECT_THAT(warnings, ElementsAre());
  std::map<std::string, int> bits;
  for (const auto& [name, q, aliases] : named_quantizers(*model))
    bits[name] = q->descriptor().num_bits().bits();
  EXPECT_EQ(bits.at("a.weight_quantizer"), 8);
  EXPECT_EQ(bits.at("a.input_quantizer"), 8);
  EXPECT_EQ(bits.at("b.weight_quantizer"), 2);
  EXPECT_EQ(bits.at("b.input_quantizer"), 2);
  EXPECT_EQ(bits.at("c.weight_quantizer"), 4);
  EXPECT_EQ(bits.at("c.input_quantizer"), 2);
}

/// Two sums of a stream that norms read, one that a convolution reads, and the network's output.
constexpr const char* kSums = R"([
    {"name": "up", "type": "linear", "options": {"out_features": 8}, "inputs": ["input"]},
    {"name": "first", "type": "add", "inputs": ["up", "input"]},
    {"name": "norm1", "type": "layer_norm", "options": {"shape": [8]}, "inputs": ["first"]},
    {"name": "mid", "type": "linear", "options": {"out_features": 8}, "inputs": ["norm1"]},
    {"name": "second", "type": "add", "inputs": ["mid", "first"]},
    {"name": "norm2", "type": "rms_norm", "options": {"shape": [8]}, "inputs": ["second"]},
    {"name": "codes", "type": "add", "inputs": ["norm2", "up"]},
    {"name": "down", "type": "linear", "options": {"out_features": 8}, "inputs": ["codes"]},
    {"name": "last", "type": "add", "inputs": ["down", "norm2"]}])";

TEST(ResidualSums, ExcludeTheQuantizerAfterAConvolution) {
  for (const char* between : {"", R"({"name": "pool", "type": "avg_pool", "options": {"kernel": 1}}, )"}) {
    const std::string text = "[" + conv("a") + ", " + between + R"({"name": "act", "type": "relu"},
        {"name": "sum", "type": "add", "inputs": ["act", "input"]}, {"name": "end", "type": "gelu"}])";
    EXPECT_THAT(detail::residual_sums(trace(*built(text), {1, 4, 8, 8})), ElementsAre()) << between;
  }
}

TEST(ResidualSums, AreReadByNormsAndOtherSums) {
  const auto model = build_model(ModelSpec::parse(kSums), {8});
  EXPECT_THAT(detail::residual_sums(trace(*model, {1, 8})), ElementsAre("first", "second"));
}

TEST(ResidualSums, AreSelectedByTheResidualRule) {
  const auto added = [](nlohmann::ordered_json config) {
    const auto model = build_model(ModelSpec::parse(kSums), {8});
    EXPECT_THAT(quantize(*model, QuantConfig::from_json(config), {1, 8}), ElementsAre());
    std::vector<std::string> out;
    for (const char* path : {"first", "second", "codes", "last"})
      if (dynamic_cast<const QuantModule*>(&model->at(path)) != nullptr) out.emplace_back(path);
    return out;
  };
  nlohmann::ordered_json config{{"preset", "int8"}};
  EXPECT_THAT(added(config), ElementsAre("first", "second", "codes", "last"));
  config["rules"] = {{{"pattern", "@residual.*"}, {"enable", false}}};
  EXPECT_THAT(added(config), ElementsAre("codes", "last"));
  config["rules"].push_back({{"pattern", "second.*"}, {"enable", true}});
  EXPECT_THAT(added(config), ElementsAre("second", "codes", "last"));
}

}  // namespace
}  // namespace fq::edge_layers_test
