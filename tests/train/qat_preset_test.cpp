// Default training settings of a preset, and their report.

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/quantizer/detail/ggml_scheme.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/qat_defaults.h"
#include "layers/networks.h"

namespace fq::qat_preset_test {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string preset_text(const std::string& preset, const PresetChoices& choices = {}) {
  return describe_choice(QuantConfig::from_json(preset_config(preset, choices)));
}

TEST(QatPreset, LowBitsUseEightBitEdgesAndMinimalErrorRanges) {
  EXPECT_EQ(preset_text("int8"), "target ort, scale free");
  EXPECT_EQ(preset_text("w2a2"),
            "target ort, scale free; ranges by one_pass_mse; 8 bits in the first and the last layer");
  EXPECT_EQ(preset_text("int2_blockwise"), preset_text("w2a2"));
  EXPECT_EQ(preset_config("int2_blockwise").at("rules").at(1).at("axis"), 0);
  EXPECT_THAT(preset_text("nvfp4"), HasSubstr("E4M3 in the first and the last layer"));
  EXPECT_THAT(preset_text("w2a2", {.weight_method = {}, .edge_bits = 4}), HasSubstr("4 bits in the first"));
  EXPECT_EQ(preset_text("w2a2", {.weight_method = {}, .edge_bits = 0}),
            "target ort, scale free; ranges by one_pass_mse");
}

TEST(QatPreset, KeepsFloatSumsForCodeAddingEngines) {
  const auto last_rule = [](const char* preset) {
    const auto config = preset_config(preset);
    return config.contains("rules") ? config.at("rules").back().dump() : "";
  };
  for (const char* preset : {"int8", "fp8", "nvfp4", "mxfp4", "w4a8", "w2a2"})
    EXPECT_EQ(last_rule(preset), R"({"pattern":"@residual.*","enable":false})") << preset;
  for (const char* preset : {"int8_weight_only", "int2_blockwise", "8da4w", "q4_0", "int8_dynamic"})
    EXPECT_THAT(last_rule(preset), ::testing::Not(HasSubstr("@residual"))) << preset;
}

TEST(QatPreset, AdditionsHaveEightBitsBesideFourBitProducts) {
  const auto bits = [](const std::string& preset, const PresetChoices& choices = {}) {
    const auto model = test::residual_net();
    quantize(*model, QuantConfig::from_json(preset_config(preset, choices)), {1, 1, 8, 8});
    std::vector<int> out;
    for (const char* path : {"conv2.weight_quantizer", "conv2.input_quantizer", "add.input_quantizer",
                             "add.input_quantizer_1", "gap.input_quantizer", "fc.input_quantizer"})
      out.push_back(dynamic_cast<TensorQuantizer&>(model->at(path)).descriptor().num_bits().bits());
    return out;
  };
  EXPECT_THAT(bits("w4a4"), ElementsAre(4, 4, 8, 8, 8, 8));
  EXPECT_THAT(bits("w2a2"), ElementsAre(2, 2, 8, 8, 8, 8));
  EXPECT_THAT(bits("w4a8"), ElementsAre(4, 8, 8, 8, 8, 8));
  EXPECT_THAT(bits("w4a4", {.weight_method = {}, .edge_bits = 6}), ElementsAre(4, 4, 6, 6, 6, 6));
  EXPECT_THAT(bits("w4a4", {.weight_method = {}, .edge_bits = 0}), ElementsAre(4, 4, 4, 4, 4, 4));
}

TEST(QatPreset, WeightMethodIsARule) {
  const auto rule = [](const PresetChoices& choices) {
    return preset_config("w4a4", choices).at("rules").at(0);
  };
  EXPECT_EQ(rule({}).at("calib_method"), "mse");
  EXPECT_EQ(rule({.weight_method = "entropy", .edge_bits = {}}).at("calib_method"), "entropy");
}

TEST(QatPreset, ScaleSearchUsesStaticBlocks) {
  const auto rules = preset_config("nvfp4", {.weight_method = "scale_sweep", .edge_bits = {}}).at("rules");
  EXPECT_EQ(
      rules.at(0).dump(),
      R"({"pattern":"*weight_quantizer","block_sizes":{"type":"static","scale_bits":[4,3],"-1":16},"calib_method":"scale_sweep"})");
  EXPECT_EQ(rules.at(2).dump(), R"({"pattern":"@last.*weight_quantizer","calib_method":"max"})");
  const auto theirs = preset_config("NVFP4_W4A4_WEIGHT_MSE_FP8_SWEEP_CFG", {});
  EXPECT_EQ(theirs.at("rules").at(1).dump(), R"({"pattern":"@last.*weight_quantizer","calib_method":"max"})");
  for (const char* preset : {"mxfp4", "int8", "w4a4"})
    EXPECT_THROW((void)preset_config(preset, {.weight_method = "scale_sweep", .edge_bits = {}}),
                 ArgumentError)
        << preset;
}

/// Whether a method of the weights changes a range, or the steps of ggml's blocks.
void expect_follows(const std::string& preset, const std::string& method) {
  const ordered_json config = preset_config(preset, {.weight_method = method, .edge_bits = 0});
  Graph model({{"fc", std::make_shared<Linear>(128, 16), {"input"}}});
  quantize(model, QuantConfig::from_json(config), {1, 128});
  DataLoader data(std::make_shared<TensorDataset>(test::random_tensor({8, 128}, -1, 1)), {.batch_size = 8});
  calibrate(model, data);
  const auto* layer = dynamic_cast<QuantModule*>(&model.at("fc"));
  ASSERT_NE(layer, nullptr);
  const auto& weight = *layer->weight_quantizer();
  EXPECT_EQ(weight.descriptor().calib_method(), method);
  const bool follows = weight.descriptor().needs_amax() || detail::ggml_scheme(weight.params()) != nullptr;
  EXPECT_TRUE(follows || method == "max");
}

TEST(QatPreset, WeightMethodAppliesToEveryPresetOrIsRejected) {
  int rejected = 0;
  for (const auto& preset : QuantConfig::preset_names())
    for (const auto& method : QuantDescriptor::calib_methods()) {
      SCOPED_TRACE(preset + " " + std::string(method));
      try {
        expect_follows(preset, std::string(method));
      } catch (const ArgumentError& error) {
        ++rejected;
        EXPECT_NE(method, "max") << error.what();
        EXPECT_THAT(error.what(), HasSubstr("use ")) << error.what();
      }
    }
  EXPECT_GT(rejected, 100);
  EXPECT_LT(rejected, 250);
}

TEST(QatPreset, NamesUnsuitableOptions) {
  const auto message = [](const std::string& preset, std::int64_t bits) -> std::string {
    try {
      (void)preset_config(preset, {.weight_method = {}, .edge_bits = bits});
    } catch (const ArgumentError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message("w2a2", 1), HasSubstr("edge_bits is 1: use 2 to 16, or 0"));
  EXPECT_THAT(message("w2a2", 17), HasSubstr("edge_bits is 17"));
  EXPECT_THAT(message("nvfp4", 4), HasSubstr("use 8 (E4M3) or 0"));
  EXPECT_THAT(message("mxfp8", 8), HasSubstr("edge_bits is for integers"));
  EXPECT_THAT(message("w2a3", 8), HasSubstr("w2a3"));
}

TEST(QatTraining, OptionsOverrideDefaults) {
  const QuantConfig config = QuantConfig::preset("w2a2");
  TrainerOptions options;
  complete_training(options, config);
  EXPECT_EQ(describe_training(options, false),
            "ranges learned (lsq), of weights too at 3 times the rate; learning rate 0.004");
  TrainingChoices choices;
  choices.amax = AmaxMode::frozen;
  choices.learning_rate = 1e-3;
  options = {};
  complete_training(options, config, choices);
  EXPECT_EQ(describe_training(options, false), "ranges frozen; learning rate 0.001");
  EXPECT_FALSE(options.ranges.learn_weight_ranges);
  options = {};
  complete_training(options, QuantConfig::preset("w4a4"), {}, true);
  EXPECT_EQ(options.optimizer.learning_rate, 1e-3);  // towards itself
}

TEST(QatTraining, AdaptersKeepCalibratedRanges) {
  TrainerOptions options{.low_rank = {.rank = 4, .alpha = 2}};
  complete_training(options, QuantConfig::preset("w2a2"));
  EXPECT_EQ(describe_training(options, false),
            "ranges frozen; learning rate 0.001; adapters of rank 4 alone, times 0.5");
}

TEST(QatTraining, DetectsTextByDenseTokenLabels) {
  EXPECT_FALSE(is_text(TensorDataset(Tensor::zeros({4, 6}), Tensor::zeros({4}, DType::i64))));
  TrainerOptions options;
  complete_training(options, QuantConfig::preset("w2a8"), {}, true, true);
  EXPECT_EQ(options.optimizer.learning_rate, 4e-3);
  EXPECT_EQ(options.ranges.amax, AmaxMode::learned);
  options = {};
  complete_training(options, QuantConfig::preset("w4a8"), {}, false, true);
  EXPECT_EQ(describe_training(options, false),
            "ranges frozen, of weights learned (lsq) at 0.1 times the rate; learning rate 0.0005");
}

TEST(QatTraining, LowBitTextUsesDistillationWithHalfWeight) {
  const auto preset_text = [](const char* preset, bool self, bool text, const TrainingChoices& choices = {}) {
    TrainerOptions options;
    options.objective.distillation.temperature = 3;
    complete_training(options, QuantConfig::preset(preset), choices, self, text);
    return std::pair(options.objective.distillation.temperature, options.objective.distillation.weight);
  };
  EXPECT_EQ(preset_text("w2a8", true, true), std::pair(1.0, 0.5));
  EXPECT_EQ(preset_text("int8", true, true), std::pair(1.0, 1.0));   // asked for: it has no share of its own
  EXPECT_EQ(preset_text("w2a8", false, true), std::pair(3.0, 1.0));  // another teacher
  EXPECT_EQ(preset_text("w2a8", true, false), std::pair(3.0, 1.0));
  const TrainingChoices choices{.temperature = 4, .teacher_share = 0.25};
  EXPECT_EQ(preset_text("w2a8", true, true, choices), std::pair(4.0, 0.25));
  EXPECT_EQ(preset_text("w2a8", true, false, choices), std::pair(4.0, 0.25));
}

TEST(QatTraining, DistillsItselfIfOverfittedAndOnLowBitText) {
  EXPECT_TRUE(has_memorized_training_data(0.99));
  EXPECT_FALSE(has_memorized_training_data(0.989));
  EXPECT_TRUE(follows_itself(QuantConfig::preset("int8"), 0.99, false));
  EXPECT_FALSE(follows_itself(QuantConfig::preset("w2a8"), 0.5, false));
  EXPECT_TRUE(follows_itself(QuantConfig::preset("w2a8"), 0.5, true));
  EXPECT_FALSE(follows_itself(QuantConfig::preset("int8"), 1, true));
}

}  // namespace
}  // namespace fq::qat_preset_test
