// Presets, ModelOpt's configs in all forms, and rejected configs.

#include "fakequant/layers/config/quant_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/detail/placed_error.h"
#include "fakequant/core/error.h"
#include "fakequant/layers/quantizer/sequential_quantizer.h"
#include "layers/networks.h"
#include "thrown.h"

namespace fq::quant_config_test {
namespace {

using namespace test;
using ::testing::HasSubstr;

/// path -> descriptor of the enabled quantizers, "off" of the others
std::map<std::string, std::string> placed(const QuantConfig& config) {
  auto model = residual_net();
  quantize(*model, config, {1, 1, 8, 8});
  std::map<std::string, std::string> out;
  for (const auto& [name, q, aliases] : named_quantizers(*model))
    out[name] = q->enabled() ? q->descriptor().to_json() : "off";
  return out;
}

std::map<std::string, std::string> parsed(const std::string& quant_cfg, const std::string& more = "") {
  return placed(QuantConfig::parse(R"({"target": "none", "quant_cfg": )" + quant_cfg + more + "}"));
}

TEST(QuantConfig, AllFormsOfQuantCfgAreEquivalent) {
  const std::string weight =
      R"({"num_bits": [2, 1], "block_sizes": {"-1": 16, "type": "dynamic", "scale_bits": [4, 3]}})";
  const auto expected = parsed(R"([{"quantizer_name": "*", "enable": false},
      {"quantizer_name": "*weight_quantizer", "cfg": )" +
                               weight + R"(},
      {"quantizer_name": "*input_quantizer", "cfg": {"num_bits": "e4m3", "axis": null}}])");
  EXPECT_EQ(expected.at("fc.weight_quantizer"),
            R"({"block_sizes":{"-1":16,"scale_bits":[4,3],"type":"dynamic"},"num_bits":[2,1]})");
  EXPECT_EQ(expected.at("fc.input_quantizer"), R"({"num_bits":[4,3]})");
  EXPECT_EQ(expected.at("fc.output_quantizer"), "off");
  const std::string input = R"("*input_quantizer": {"num_bits": [4, 3], "trt_high_precision_dtype": "Half"})";
  EXPECT_EQ(parsed(R"({"*weight_quantizer": )" + weight + "," + input + R"(, "default": {"enable": false}})",
                   R"(, "algorithm": {"method": "max"})"),
            expected);
  EXPECT_EQ(parsed(R"([{"*": {"enable": false}}, {"*weight_quantizer": )" + weight + "}, {" + input + "}]",
                   R"(, "algorithm": null)"),
            expected);
}

TEST(QuantConfig, CfgReplacesAndEnableSwitches) {
  const auto rules = parsed(R"([{"quantizer_name": "*weight_quantizer", "cfg": {"num_bits": 8, "axis": 0}},
      {"quantizer_name": "conv2.weight_quantizer", "cfg": {"num_bits": 4}},
      {"quantizer_name": "fc*", "enable": false},
      {"quantizer_name": "*input_quantizer", "cfg": {"num_bits": 8}, "enable": false}])");
  EXPECT_EQ(rules.at("conv1.weight_quantizer"), R"({"axis":0})");
  EXPECT_EQ(rules.at("conv2.weight_quantizer"), R"({"num_bits":4})");
  EXPECT_FALSE(rules.contains("fc.weight_quantizer"));
  EXPECT_EQ(rules.at("conv1.input_quantizer"), "off");
}

TEST(QuantConfig, ParentClassesScopeRules) {
  const auto rules = parsed(R"({"*weight_quantizer": {"num_bits": 8}, "nn.Linear": {"*": {"enable": false}},
      "nn.BatchNorm2d": {"*": {"enable": false}}})");
  EXPECT_TRUE(rules.contains("conv1.weight_quantizer"));
  EXPECT_FALSE(rules.contains("fc.weight_quantizer"));
}

TEST(QuantConfig, ListsBecomeSequences) {
  auto model = residual_net();
  const auto config = QuantConfig::parse(R"({"quant_cfg": [{"quantizer_name": "*weight_quantizer",
      "cfg": [{"num_bits": 4, "block_sizes": {"-1": 128, "type": "static"}}, {"num_bits": "e4m3"}]},
      {"quantizer_name": "*input_quantizer", "cfg": {"num_bits": "e4m3"}}]})");
  quantize(*model, config, {1, 1, 8, 8});
  EXPECT_EQ(model->at("fc.weight_quantizer").type(), "sequential_quantizer");
  const auto all = named_quantizers(*model);
  const auto second = std::ranges::find(all, "fc.weight_quantizer.1", &NamedQuantizer::name);
  ASSERT_NE(second, all.end());
  EXPECT_EQ(second->quantizer->descriptor(), QuantDescriptor({.num_bits = {4, 3}}));
  EXPECT_EQ(second->quantizer->name(), "fc.weight_quantizer.1");
}

TEST(QuantConfig, LaterRulesOverrideEarlierOnes) {
  const auto rules = placed(QuantConfig::parse(R"({"preset": "int8", "target": "none", "rules": [
      {"pattern": "*weight_quantizer", "block_sizes": {"-1": 32}},
      {"pattern": "fc.weight_quantizer", "axis": 0}, {"pattern": "fc.input_quantizer", "pass_through_bwd": true}]})"));
  EXPECT_EQ(rules.at("conv1.weight_quantizer"), R"({"block_sizes":{"-1":32},"narrow_range":true})");
  EXPECT_EQ(rules.at("fc.weight_quantizer"), R"({"axis":0,"narrow_range":true})");
  auto model = residual_net();
  quantize(*model, QuantConfig::parse(R"({"preset": "int8", "rules": [
      {"pattern": "fc.input_quantizer", "pass_through_bwd": true, "amax_gradient": "lsq"}]})"),
           {1, 1, 8, 8});
  const auto& q = dynamic_cast<TensorQuantizer&>(model->at("fc.input_quantizer"));
  EXPECT_TRUE(q.params().passes_through());
  EXPECT_EQ(q.params().amax_gradient, AmaxGradient::lsq);
}

TEST(QuantConfig, RuleMayNameAPreset) {
  EXPECT_EQ(placed(QuantConfig::parse(R"({"rules": [{"pattern": "*", "preset": "w4a8"}]})")),
            placed(QuantConfig::preset("w4a8")));
  const auto all = placed(QuantConfig::preset("int8")), four = placed(QuantConfig::preset("w4a8"));
  const auto mixed = placed(QuantConfig::parse(
      R"({"preset": "int8", "rules": {"fc.*": {"preset": "w4a8"}, "conv1.*": {"enable": false}}})"));
  EXPECT_EQ(mixed.at("fc.weight_quantizer"), four.at("fc.weight_quantizer"));
  EXPECT_EQ(mixed.at("conv2.weight_quantizer"), all.at("conv2.weight_quantizer"));
  EXPECT_FALSE(mixed.contains("conv1.weight_quantizer"));
  const auto error_text = [](const std::string& rule) {
    return error_message([&] { return QuantConfig::parse(R"({"rules": [)" + rule + "]}"); });
  };
  EXPECT_THAT(error_text(R"({"pattern": "fc", "preset": "int8"})"), HasSubstr("does not end in '*'"));
  EXPECT_THAT(error_text(R"({"pattern": "fc.*", "preset": "int9"})"), HasSubstr("did you mean"));
  EXPECT_THAT(error_text(R"({"pattern": "fc.*", "preset": "int4"})"),
              HasSubstr("did you mean int4_blockwise, w4a8 or w4a4?"));
  EXPECT_THAT(error_text(R"({"pattern": "fc.*", "preset": 8})"), HasSubstr("no other fields"));
  EXPECT_THAT(error_text(R"({"pattern": "fc.*", "preset": "int8", "enable": true})"),
              HasSubstr("no other fields"));
  EXPECT_THAT(error_text(R"({"pattern": "fc.*", "preset": "NVFP4_MLP_ONLY_CFG"})"), HasSubstr("covers only"));
}

TEST(QuantConfig, SupportsEveryConstant) {
  for (const char* name :
       {"INT8_DEFAULT_CFG", "INT8_WEIGHT_ONLY_CFG", "FP8_DEFAULT_CFG", "FP8_PER_CHANNEL_PER_TOKEN_CFG",
        "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", "INT4_BLOCKWISE_WEIGHT_ONLY_CFG", "NVFP4_DEFAULT_CFG",
        "NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG", "W4A16_NVFP4_CFG", "W4A8_NVFP4_FP8_CFG", "W4A8_MXFP4_FP8_CFG",
        "MXFP4_DEFAULT_CFG", "MXFP6_DEFAULT_CFG", "MXFP8_DEFAULT_CFG", "MXINT8_DEFAULT_CFG"})
    EXPECT_GE(placed(QuantConfig::preset(name)).size(), 6u) << name;
  const auto swept = QuantConfig::preset("NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG");
  EXPECT_TRUE(std::ranges::any_of(
      swept.rules, [](const auto& rule) { return rule.fields.calib_method == "scale_sweep"; }));
  for (const auto& [name, why] :
       std::map<std::string, std::string>{{"NVFP4_AWQ_FULL_CFG", "dynamic blocks"},
                                          {"NVFP4_SVDQUANT_DEFAULT_CFG", "svdquant"},
                                          {"NVFP4_KV_ROTATE_CFG", "rotations of keys"}})
    EXPECT_THAT(error_message([&name = name] { return QuantConfig::preset(name); }),
                HasSubstr(why + ", which is not available"));
}

TEST(QuantConfig, AcceptsAlgorithmsOnWeights) {
  for (const auto& [name, algorithm] :
       std::map<std::string, std::string>{{"W4A8_AWQ_BETA_CFG", "awq_lite"},
                                          {"INT4_AWQ_CFG", "awq_lite"},
                                          {"NVFP4_AWQ_LITE_CFG", "awq_lite"},
                                          {"INT8_SMOOTHQUANT_CFG", "smoothquant"}}) {
    const QuantConfig config = QuantConfig::preset(name);
    EXPECT_EQ(config.weight_algorithm, algorithm) << name;
    EXPECT_EQ(config.algorithm, "max") << name;
    EXPECT_GE(placed(config).size(), 3u) << name;
  }
  EXPECT_TRUE(QuantConfig::preset("int8").weight_algorithm.empty());
  const auto config =
      QuantConfig::parse(R"({"quant_cfg": {}, "algorithm": {"method": "awq_lite", "alpha_step": 0.25}})");
  EXPECT_EQ(config.weight_algorithm, "awq_lite");
  EXPECT_EQ(config.weight_options->dump(), R"({"alpha_step":0.25})");
  // ModelOpt's smoothquant has alpha 1 by default; ours has no default alpha here
  EXPECT_EQ(QuantConfig::preset("INT8_SMOOTHQUANT_CFG").weight_options->dump(), R"({"alpha":1.0})");
  const auto theirs = QuantConfig::parse(R"({"preset": "int8", "algorithm": "smoothquant"})");
  EXPECT_EQ(theirs.weight_options->dump(), R"({"alpha":1.0})");
  const auto half = QuantConfig::parse(R"({"preset": "int8",
      "algorithm": {"method": "smoothquant", "alpha": 0.5, "debug": true, "percentile": 99}})");
  EXPECT_EQ(half.weight_options->dump(), R"({"alpha":0.5})");
  EXPECT_EQ(half.amax.percentile, 99);
  const auto ours = QuantConfig::parse(R"({"preset": "int8", "weight_algorithm": "smoothquant"})");
  EXPECT_EQ(ours.weight_options, nullptr);
  const auto both = QuantConfig::parse(
      R"({"preset": "w4a8", "algorithm": "percentile", "weight_algorithm": {"method": "gptq", "act_order": true}})");
  EXPECT_EQ(both.algorithm, "percentile");
  EXPECT_EQ(both.weight_algorithm, "gptq");
  const auto none = QuantConfig::parse(R"({"preset": "INT4_AWQ_CFG", "weight_algorithm": null})");
  EXPECT_TRUE(none.weight_algorithm.empty());
}

TEST(QuantConfig, ErrorsNameTheEntry) {
  const auto error_text = [](const char* text) {
    return error_message([&] { return QuantConfig::parse(text); });
  };
  EXPECT_THAT(error_text(R"({"quant_cfg": 3})"), HasSubstr("use a list of entries"));
  EXPECT_THAT(error_text(R"({"quant_cfg": [3]})"), HasSubstr("an entry of 'quant_cfg' is 3"));
  EXPECT_THAT(error_text(R"({"quant_cfg": [{"quantizer_name": "*"}]})"), HasSubstr("neither cfg nor enable"));
  EXPECT_THAT(error_text(R"({"quant_cfg": [{"quantizer_name": "*", "cfg": {}}]})"),
              HasSubstr("use an object"));
  EXPECT_THAT(error_text(R"({"quant_cfg": [{"quantizer_name": "*", "cfg": []}]})"), HasSubstr("empty list"));
  EXPECT_THAT(error_text(R"({"quant_cfg": [{"quantizer_name": "*", "config": 1}]})"),
              HasSubstr("'config' is not a key"));
  EXPECT_THAT(error_text(R"({"quant_cfg": [{"quantizer_name": 1, "enable": true}]})"),
              HasSubstr("use a string"));
  EXPECT_THAT(error_text(R"({"quant_cfg": {"*": {"num_bits": "int8"}}})"), HasSubstr("'int8' is unknown"));
  EXPECT_THAT(error_text(R"({"quant_cfg": {"*": {"enable": 1}}})"), HasSubstr("use a bool"));
  EXPECT_THAT(error_text(R"({"quant_cfg": {}, "algorithm": "svdquant"})"),
              HasSubstr("'svdquant' is unsupported"));
  EXPECT_THAT(error_text(R"({"preset": "int8", "weight_algorithm": "max"})"), HasSubstr("use one of gptq"));
  EXPECT_THAT(error_text(R"({"preset": "int8", "weight_algorithm": "gtpq"})"),
              HasSubstr("did you mean 'gptq'"));
  EXPECT_THAT(error_text(R"({"preset": "int8", "weight_algorithm": {"damping": 1}})"),
              HasSubstr("use one of gptq"));
  EXPECT_THAT(error_text(R"({"preset": "int8", "weight_algorithm": 7})"),
              HasSubstr("'weight_algorithm' is 7"));
  EXPECT_THAT(error_text(R"({"quant_cfg": {}, "algorithm": 7})"), HasSubstr("name of a method"));
  const auto quantized = [](const char* text) {
    auto model = residual_net();
    return error_message([&] { return quantize(*model, QuantConfig::parse(text), {1, 1, 8, 8}); });
  };
  EXPECT_THAT(quantized(R"({"rules": [{"pattern": "*", "sequence": 3}]})"),
              HasSubstr("use a list of fields"));
  EXPECT_THAT(quantized(R"({"rules": [{"pattern": "*", "sequence": [3]}]})"), HasSubstr("use objects"));
  EXPECT_THAT(quantized(R"({"rules": [{"pattern": "*", "pass_through_bwd": 3}]})"),
              HasSubstr("true or false"));
  EXPECT_THAT(quantized(R"({"rules": [{"pattern": "*", "enable": "yes"}]})"),
              HasSubstr("'enable' is \"yes\""));
  EXPECT_THAT(quantized(R"({"rules": [{"pattern": "*", "amax_gradient": "pact"}]})"),
              HasSubstr("use clip or lsq"));
}

TEST(QuantConfig, RequiresFieldsAsAnObject) {
  for (const char* text : {"null", "3", "[]", "[{\"num_bits\": 4}]", "\"int8\""})
    EXPECT_THAT(
        error_message([&] { return PartialQuantParams::from_dict(nlohmann::json::parse(text)).enable; }),
        HasSubstr("use an object"))
        << text;
}

TEST(QuantConfig, SupportsRulesInCpp) {
  QuantConfig own = QuantConfig::preset("int8");
  own.rules.push_back(
      {.pattern = "conv2.weight_quantizer", .fields = {.num_bits = 4, .block_sizes = BlockSizes{{{-1, 8}}}}});
  own.rules.push_back({.pattern = "fc*", .fields = {.enable = false}});
  EXPECT_EQ(placed(own), placed(QuantConfig::parse(R"({"preset": "int8", "rules": [
      {"pattern": "conv2.weight_quantizer", "num_bits": 4, "block_sizes": {"-1": 8}},
      {"pattern": "fc*", "enable": false}]})")));
}

/// The descriptor of fc's weight after these rules, one after the other
std::string merged(const std::vector<std::string>& rules) {
  std::string text;
  for (const auto& rule : rules) text += R"(, {"pattern": "fc.weight_quantizer", )" + rule + "}";
  return placed(
             QuantConfig::parse(R"({"preset": "w4a8", "target": "none", "rules": [)" + text.substr(2) + "]}"))
      .at("fc.weight_quantizer");
}

TEST(QuantConfig, NullRestoresTheDefault) {
  EXPECT_EQ(merged({R"("enable": true)"}), R"({"axis":0,"narrow_range":true,"num_bits":4})");
  EXPECT_EQ(merged({R"("num_bits": null)"}), R"({"axis":0,"narrow_range":true})");
  EXPECT_EQ(merged({R"("axis": null)"}), R"({"narrow_range":true,"num_bits":4})");
  EXPECT_EQ(merged({R"("axis": null, "narrow_range": null)", R"("amax": 2)", R"("amax": null)"}),
            R"({"num_bits":4})");
  // an axis takes blocks back, null does not
  EXPECT_EQ(merged({R"("block_sizes": {"-1": 4})", R"("axis": null)"}),
            R"({"block_sizes":{"-1":4},"narrow_range":true,"num_bits":4})");
  EXPECT_EQ(merged({R"("block_sizes": {"-1": 4})", R"("axis": 1)"}),
            R"({"axis":1,"narrow_range":true,"num_bits":4})");
  EXPECT_EQ(merged({R"("block_sizes": {"-1": 4})", R"("axis": [])"}),
            R"({"narrow_range":true,"num_bits":4})");
  EXPECT_EQ(merged({R"("sequence": [{"num_bits": 4}, {"num_bits": 8}])", R"("num_bits": 3)"}),
            R"({"axis":0,"narrow_range":true,"num_bits":3})");
}

/// The JSON pointer of the mistake that `quantize` finds in a config.
std::string error_position(const std::string& text) {
  try {
    (void)placed(QuantConfig::parse(text));
  } catch (const detail::PlacedError& error) {
    return error.pointer();
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

TEST(QuantConfig, ErrorsReportTheirPosition) {
  EXPECT_EQ(error_position(R"({"presett": "int8"})"), "/presett");
  EXPECT_EQ(error_position(R"({"preset": "int9"})"), "/preset");
  EXPECT_EQ(error_position(R"({"preset": 8})"), "/preset");
  EXPECT_EQ(error_position(R"({"target": "gpu"})"), "/target");
  EXPECT_EQ(error_position(R"({"scale": "two"})"), "/scale");
  EXPECT_EQ(error_position(R"({"strict": 1})"), "/strict");
  EXPECT_EQ(
      error_position(R"({"rules": [{"pattern": "*", "enable": true}, {"pattern": "*", "num_bitz": 4}]})"),
      "/rules/1/num_bitz");
  EXPECT_EQ(error_position(R"({"rules": {"a/b": {"num_bits": "four"}}})"), "/rules/a~1b/num_bits");
  EXPECT_EQ(error_position(R"({"rules": [{"pattern": "*", "sequence": [{"num_bits": 4}, {"axis": "x"}]}]})"),
            "/rules/0/sequence/1/axis");
  EXPECT_EQ(error_position(R"({"rules": [{"pattern": "fc.*", "preset": "int9"}]})"), "/rules/0");
  EXPECT_EQ(error_position(R"({"quant_cfg": [{"*": {"num_bits": 8}}, {"*": {"num_bits": "int8"}}]})"),
            "/quant_cfg/1/*");
  EXPECT_EQ(error_position(R"({"quant_cfg": {"*weight_quantizer": {"num_bitz": 1}}})"),
            "/quant_cfg/*weight_quantizer/num_bitz");
  EXPECT_EQ(
      error_position(R"({"quant_cfg": [{"quantizer_name": "*", "cfg": [{"num_bits": 8}, {"axis": "x"}]}]})"),
      "/quant_cfg/0/cfg/1/axis");
  EXPECT_EQ(error_position(R"({"preset": "int8", "weight_algorithm": "gtpq"})"), "/weight_algorithm");
  EXPECT_EQ(error_position(R"({"preset": "int8", "algorithm": "maxx"})"), "/algorithm");
  // what only the merged rules show: the last one of the quantizer
  EXPECT_EQ(error_position(R"({"rules": [{"pattern": "fc*", "axis": 0}, {"pattern": "*", "num_bits": 40}]})"),
            "/rules/1");
}

}  // namespace
}  // namespace fq::quant_config_test
