// Default training settings of a format.

#include "fakequant/train/qat_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fq::qat_defaults_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

QatDefaults of(const std::string& json) { return qat_defaults(QuantConfig::parse(json)); }

TEST(QatDefaults, LowBitStaticIntegersLearnTheirRanges) {
  for (const char* preset : {"w4a4", "w3a3", "w2a2", "w4a8", "w3a8", "w2a8"}) {
    const QatDefaults found = qat_defaults(QuantConfig::preset(preset));
    EXPECT_EQ(found.edge_bits, 8) << preset;
    EXPECT_EQ(found.amax, AmaxMode::learned) << preset;
    EXPECT_EQ(found.amax_gradient, AmaxGradient::lsq) << preset;
    EXPECT_TRUE(found.learn_weight_ranges) << preset;
    EXPECT_THAT(found.integers, ElementsAre("weight_quantizer", "input_quantizer")) << preset;
  }
  EXPECT_EQ(qat_defaults(QuantConfig::preset("w2a2")).bits, 2);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("w2a2")).learning_rate, 4e-3);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("w2a2")).distilled_learning_rate, 4e-3);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("w4a4")).learning_rate, 4e-3);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("w4a4")).distilled_learning_rate, 1e-3);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("w3a3")).distilled_learning_rate, 2e-3);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("int8")).distilled_learning_rate, 1e-4);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("ternary")).learning_rate, 5e-4);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("binary")).learning_rate, 4e-3);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("binary")).distilled_learning_rate, 4e-3);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("ternary")).amax, AmaxMode::frozen);  // there is none to learn
  EXPECT_TRUE(qat_defaults(QuantConfig::preset("ternary")).learn_weight_ranges);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("w4a8")).activation_bits, 8);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("w4a8")).learning_rate, 5e-4);
}

TEST(QatDefaults, TwoBitBlocksLearnRangesAndUseEightBitEdges) {
  const QatDefaults found = qat_defaults(QuantConfig::preset("int2_blockwise"));
  EXPECT_EQ(found.bits, 2);
  EXPECT_EQ(found.edge_bits, 8);
  EXPECT_EQ(found.weight_method, "mse_search");
  EXPECT_TRUE(found.learn_weight_ranges);
  EXPECT_EQ(found.amax, AmaxMode::frozen);
  EXPECT_EQ(found.amax_rate, 0.1);
  EXPECT_THAT(found.integer_blocks, ElementsAre("weight_quantizer"));
  EXPECT_THAT(found.integers, IsEmpty());
}

TEST(QatDefaults, TextUsesHigherRatesAndDistillation) {
  for (const auto& [preset, rate, share] : {std::tuple{"int8", 3e-4, 0.0},
                                            {"int8_weight_only", 3e-4, 0.0},
                                            {"8da8w", 3e-4, 0.0},
                                            {"q8_0", 3e-4, 0.0},
                                            {"mxint8", 3e-4, 0.0},
                                            {"fp8", 5e-4, 0.5},
                                            {"mxfp8", 5e-4, 0.5},
                                            {"w4a8", 5e-4, 0.5},
                                            {"8da4w", 5e-4, 0.5},
                                            {"q4_0", 5e-4, 0.5},
                                            {"int4_blockwise", 5e-4, 0.5},
                                            {"w3a8", 2e-3, 0.5},
                                            {"w4a4", 2e-3, 0.5},
                                            {"nvfp4", 1e-3, 0.5},
                                            {"w2a8", 4e-3, 0.5},
                                            {"int2_blockwise", 4e-3, 0.5}}) {
    EXPECT_EQ(qat_defaults(QuantConfig::preset(preset)).text_learning_rate, rate) << preset;
    EXPECT_EQ(qat_defaults(QuantConfig::preset(preset)).text_teacher_share, share) << preset;
  }
}

TEST(QatDefaults, OtherFormatsKeepTheirRanges) {
  for (const char* preset : {"int8", "fp8", "mxfp8", "int4_blockwise", "W4A16_NVFP4_CFG"}) {
    const QatDefaults found = qat_defaults(QuantConfig::preset(preset));
    EXPECT_EQ(found.edge_bits, 0) << preset;
    EXPECT_EQ(found.amax, AmaxMode::frozen) << preset;
    EXPECT_EQ(found.method, "max") << preset;
    EXPECT_THAT(found.float_blocks, IsEmpty()) << preset;
  }
  EXPECT_EQ(qat_defaults(QuantConfig::preset("int8")).learning_rate, 1e-4);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("mxfp8")).learning_rate, 1e-4);
  EXPECT_EQ(qat_defaults(QuantConfig::preset("int4_blockwise")).learning_rate, 5e-4);
}

TEST(QatDefaults, FixedFourBitBlocksMinimizeSquaredError) {
  for (const char* preset : {"8da4w", "int4_blockwise", "INT4_AWQ_CFG"})
    EXPECT_EQ(qat_defaults(QuantConfig::preset(preset)).weight_method, "mse_search") << preset;
  for (const char* preset : {"q4_0", "q8_0", "8da8w", "nvfp4", "int8_weight_only"})
    EXPECT_EQ(qat_defaults(QuantConfig::preset(preset)).weight_method, "max") << preset;
}

TEST(QatDefaults, FourBitFloatBlocksUseEightBitEdges) {
  for (const char* preset : {"nvfp4", "mxfp4", "NVFP4_DEFAULT_CFG"}) {
    const QatDefaults found = qat_defaults(QuantConfig::preset(preset));
    EXPECT_THAT(found.float_blocks, ElementsAre("weight_quantizer", "input_quantizer")) << preset;
    EXPECT_THAT(found.integers, IsEmpty()) << preset;
    EXPECT_EQ(found.edge_bits, 8) << preset;
    EXPECT_EQ(found.amax, AmaxMode::frozen) << preset;
    EXPECT_EQ(found.method, "max") << preset;
    EXPECT_EQ(found.learning_rate, 1e-3) << preset;
    EXPECT_EQ(found.distilled_learning_rate, 1e-3) << preset;
  }
}

TEST(QatDefaults, UserRulesCountExceptEdgesAndDisabled) {
  EXPECT_EQ(of(R"({"preset": "int8", "rules": [{"pattern": "conv2.*", "num_bits": 3}]})").bits, 3);
  EXPECT_EQ(of(R"({"preset": "int8", "rules": [{"pattern": "@first.*", "num_bits": 4}]})").bits, 8);
  EXPECT_EQ(of(R"({"preset": "int8", "rules": [{"pattern": "*", "num_bits": 4, "enable": false}]})").bits, 8);
}

}  // namespace
}  // namespace fq::qat_defaults_test
