#include "fakequant/layers/model/float_operators.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/log.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/layers/model/model_file.h"
#include "fakequant/layers/quantize.h"

namespace fq::float_operators_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Named = std::vector<std::pair<std::string, std::string>>;

const Shape kInput{1, 4, 8, 8};

std::shared_ptr<Module> quantized(const std::string& nodes,
                                  const std::string& config = R"({"preset": "int8"})") {
  auto model = build_model(ModelSpec::parse(nodes), {4, 8, 8}, 4);
  quantize(*model, QuantConfig::parse(config), kInput);
  return model;
}

Named named(Module& model, Target target = Target::ort) {
  Named out;
  for (const auto& [path, op, reason] : float_operators(model, kInput, target)) out.emplace_back(path, op);
  return out;
}

constexpr const char* kIntegers = R"([
  {"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3, "padding": 1}},
  {"name": "norm", "type": "batch_norm"}, {"name": "act", "type": "relu"},
  {"name": "b", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3, "padding": 1}},
  {"name": "sum", "type": "add", "inputs": ["b", "act"]}, {"name": "middle", "type": "relu"},
  {"name": "c", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}},
  {"name": "pool", "type": "max_pool", "options": {"kernel": 2}}, {"name": "late", "type": "relu"},
  {"name": "both", "type": "concat", "inputs": ["late", "pool"]}, {"name": "average", "type": "global_avg_pool"},
  {"name": "flat", "type": "flatten"}, {"name": "fc", "type": "linear", "options": {"out_features": 4}}])";

constexpr const char* kUnroundedAverage = R"([
  {"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3}},
  {"name": "average", "type": "global_avg_pool"}, {"name": "flat", "type": "flatten"}])";

TEST(FloatOperators, AreEmptyIfOneQuantizerRoundsEachSum) {
  EXPECT_THAT(named(*quantized(kIntegers)), IsEmpty());
}

TEST(FloatOperators, IncludeATransposedConvolutionBeforeAnActivation) {
  const auto model = quantized(R"([
    {"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3}}, {"name": "act", "type": "silu"},
    {"name": "up", "type": "conv_transpose2d", "options": {"out_channels": 4, "kernel": 2}},
    {"name": "flat", "type": "flatten"}, {"name": "fc", "type": "linear", "options": {"out_features": 4}}])");
  EXPECT_THAT(named(*model), ElementsAre(std::pair("act", "silu"), std::pair("up", "conv_transpose2d")));
}

TEST(FloatOperators, ExcludeALinearLayerAndIncludeAnAverageReadAsFloats) {
  const auto model = quantized(R"([
    {"name": "flat", "type": "flatten"}, {"name": "fc", "type": "linear", "options": {"out_features": 8}},
    {"name": "act", "type": "tanh"}, {"name": "head", "type": "linear", "options": {"out_features": 4}}])");
  EXPECT_THAT(named(*model), ElementsAre(std::pair("act", "tanh")));
  EXPECT_THAT(named(*quantized(kUnroundedAverage)), ElementsAre(std::pair("average", "global_avg_pool2d")));
}

TEST(FloatOperators, TwoQuantizersOfOneSumUseTwoKernels) {
  const auto model = quantized(R"([
    {"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3}}, {"name": "act", "type": "relu"},
    {"name": "sum", "type": "add", "inputs": ["a", "act"]}, {"name": "late", "type": "relu"},
    {"name": "b", "type": "conv2d", "options": {"out_channels": 4, "kernel": 1}},
    {"name": "last", "type": "add", "inputs": ["sum", "b"]}, {"name": "flat", "type": "flatten"},
    {"name": "fc", "type": "linear", "options": {"out_features": 4}}])");
  EXPECT_THAT(named(*model), IsEmpty());
}

TEST(FloatOperators, IncludeLayersWithoutCodeProducts) {
  const std::string nodes = R"([{"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3}},
    {"name": "act", "type": "relu"}, {"name": "flat", "type": "flatten"},
    {"name": "fc", "type": "linear", "options": {"out_features": 4}}])";
  const Named both{{"a", "conv2d"}, {"fc", "linear"}};
  for (const char* preset : {"int8_weight_only", "fp8", "w4a8"})
    EXPECT_EQ(named(*quantized(nodes, fmt::format(R"({{"preset": "{}"}})", preset))), both) << preset;
  for (const char* preset : {"w2a2", "w3a3"})
    EXPECT_THAT(named(*quantized(nodes, fmt::format(R"({{"preset": "{}"}})", preset))), IsEmpty()) << preset;
  const auto disabled =
      quantized(nodes, R"({"preset": "int8", "rules": [{"pattern": "a.*", "enable": false}]})");
  EXPECT_THAT(named(*disabled), ElementsAre(std::pair("a", "conv2d")));
  EXPECT_THAT(named(*quantized(nodes, R"({"preset": "int8", "target": "tensorrt"})"), Target::tensorrt),
              IsEmpty());
}

TEST(FloatOperators, FloatSumsAreExactIfTheirPartsAre) {
  const std::string before = R"([{"name": "flat", "type": "flatten"},
    {"name": "a", "type": "linear", "options": {"out_features": 8}}, )",
                    behind = R"({"name": "b", "type": "linear", "options": {"out_features": 8}},
    {"name": "sum", "type": "add", "inputs": ["b", "a"]},
    {"name": "fc", "type": "linear", "options": {"out_features": 4}}])",
                    norm = R"({"name": "norm", "type": "layer_norm"}, )",
                    rules = R"({"preset": "int8", "rules": [{"pattern": "sum.*", "enable": false})";
  const auto model = quantized(before + norm + behind, rules + "]}");
  EXPECT_THAT(named(*model), ElementsAre(std::pair("norm", "layer_norm")));
  EXPECT_THAT(named(*model, Target::tensorrt),
              ElementsAre(std::pair("norm", "layer_norm"), std::pair("sum", "add")));
  const auto of_float =
      quantized(before + norm + behind, rules + R"(, {"pattern": "b.*", "enable": false}]})");
  EXPECT_THAT(named(*of_float), ElementsAre(std::pair("norm", "layer_norm"), std::pair("b", "linear"),
                                            std::pair("sum", "add")));
  const auto of_gelu = quantized(before + R"({"name": "b", "type": "gelu"},
    {"name": "sum", "type": "add", "inputs": ["b", "a"]}, {"name": "fc", "type": "linear", "options": {"out_features": 4}}])",
                                 rules + "]}");
  EXPECT_THAT(named(*of_gelu), ElementsAre(std::pair("b", "gelu"), std::pair("sum", "add")));
  const auto of_codes =
      quantized(R"([{"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3}},
    {"name": "average", "type": "global_avg_pool"}, {"name": "sum", "type": "add", "inputs": ["a", "average"]},
    {"name": "flat", "type": "flatten"}, {"name": "fc", "type": "linear", "options": {"out_features": 4}}])");
  EXPECT_THAT(named(*of_codes), ::testing::Contains(std::pair("sum", "add")));
}

TEST(FloatOperators, PowersOfTwoAreExactInFloats) {
  const std::string nodes = R"([
    {"name": "a", "type": "conv2d", "options": {"out_channels": 4, "kernel": 3}}, {"name": "act", "type": "silu"},
    {"name": "flat", "type": "flatten"}, {"name": "fc", "type": "linear", "options": {"out_features": 4}}])";
  EXPECT_EQ(named(*quantized(nodes, R"({"preset": "w4a8"})")).size(), 3u);
  EXPECT_THAT(named(*quantized(nodes, R"({"preset": "w4a8", "scale": "pow2"})")),
              ElementsAre(std::pair("act", "silu")));
}

TEST(FloatOperators, AreLoggedWhenAModelIsQuantized) {
  std::vector<std::string> messages;
  set_log_callback([&](LogLevel level, std::string_view message) {
    if (level == LogLevel::warning) messages.emplace_back(message);
  });
  (void)quantized(kIntegers);
  EXPECT_THAT(messages, IsEmpty());
  (void)quantized(kUnroundedAverage);
  set_log_callback({});
  EXPECT_THAT(messages, ElementsAre(HasSubstr("computes an operator in floats")));
  EXPECT_THAT(messages,
              ElementsAre(HasSubstr("'average' (global_avg_pool2d: other operators than quantizers")));
}

TEST(FloatOperators, DescriptionIsLimitedInLength) {
  EXPECT_EQ(describe(std::vector<FloatOperator>{}), "");
  EXPECT_EQ(describe({{"a", "gelu", "x"}, {"b", "tanh", "y"}, {"c", "tanh", "y"}}, 2),
            "'a' (gelu: x), 'b' (tanh: y) and 1 more");
}

/// docs/deploy.md has the same table: a line for each form, with its operators in the order of the operator
/// table.
TEST(FloatOperators, AreDocumented) {
  std::ifstream file(std::string(FAKEQUANT_SOURCE_DIR) + "/docs/deploy.md");
  std::stringstream text;
  text << file.rdbuf();
  std::map<const EngineForm*, std::vector<std::string>> operators;
  for (const auto& row : operator_table())
    if (row.engine != EngineRule::none)
      operators[engine_form(row.name)].push_back(fmt::format("`{}`", row.name));
  ASSERT_GE(operators.size(), 10u);
  for (const auto& [form, names] : operators) {
    ASSERT_NE(form, nullptr) << names[0];
    EXPECT_THAT(text.str(), HasSubstr(fmt::format("| {} | {} | {} |", fmt::join(names, ", "),
                                                  form->exact.empty() ? "never" : form->exact,
                                                  form->reason.empty() ? "always exact" : form->reason)));
  }
}

}  // namespace
}  // namespace fq::float_operators_test
