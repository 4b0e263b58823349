#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/modelopt.h"

namespace fq::modelopt_config_test {
namespace {

using modelopt::quantizer_attribute_config;
using nlohmann::json;
using ::testing::HasSubstr;

std::string error_text(const char* text) {
  try {
    (void)quantizer_attribute_config(json::parse(text));
  } catch (const ArgumentError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModeloptConfig, ReadsModelOptFields) {
  const auto d = quantizer_attribute_config(json::parse(
      R"({"num_bits": "e2m1", "enable": true, "pass_through_bwd": false, "trt_high_precision_dtype": "Half",
          "rotate": false, "bias": null, "calibrator": "histogram",
          "block_sizes": {"-1": 16, "type": "dynamic", "scale_bits": "e4m3"}})"));
  EXPECT_EQ(d,
            QuantDescriptor(
                {.num_bits = {2, 1},
                 .block_sizes = {.lengths = {{-1, 16}}, .type = BlockType::dynamic, .scale_bits = {{4, 3}}},
                 .calib_method = "histogram"}));
  const auto per_token = quantizer_attribute_config(
      json::parse(R"({"num_bits": [4, 3], "type": "dynamic", "block_sizes": {"-1": null}})"));
  EXPECT_TRUE(per_token.dynamic());
  EXPECT_EQ(per_token.granularity(2), Granularity::per_axis(0));
  EXPECT_EQ(quantizer_attribute_config({{"constant_amax", 2.5}, {"type", "static"}}),
            QuantDescriptor({.amax = 2.5}));
}

TEST(ModeloptConfig, RejectsWhatModelOptRejects) {
  EXPECT_THAT(error_text(R"({"enable": true})"), HasSubstr("only enable is given"));
  EXPECT_THAT(error_text(R"({"num_bits": 8, "learn_amax": true})"), HasSubstr("learn_amax is unsupported"));
  EXPECT_THAT(error_text(R"({"num_bits": 0})"), HasSubstr("use 2 to 16"));
  EXPECT_THAT(error_text(R"({"num_bits": [5, 2]})"), HasSubstr("without dynamic blocks"));
  EXPECT_THAT(error_text(R"({"num_bits": 8, "axis": 0, "block_sizes": {"-1": 2}})"), HasSubstr("both given"));
  EXPECT_THAT(error_text(R"({"num_bits": "fp8"})"), HasSubstr("'fp8' is unknown"));
  EXPECT_THAT(error_text(R"({"type": "sometimes"})"), HasSubstr("use \"static\" or \"dynamic\""));
  EXPECT_THAT(error_text(R"({"rotate": true})"), HasSubstr("'rotate' is true: it is unsupported"));
  EXPECT_THAT(error_text(R"({"enable": 1, "num_bits": 8})"), HasSubstr("use true or false"));
  EXPECT_THAT(error_text(R"({"block_sizes": {"-1": 16, "four_over_six": true}})"),
              HasSubstr("four_over_six"));
  EXPECT_THAT(error_text("[]"), HasSubstr("use an object"));
}

}  // namespace
}  // namespace fq::modelopt_config_test
