#include "fakequant/train/sensitivity/auto_quantize.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/core/io/detail/atomic_file.h"
#include "fakequant/train/sensitivity/sensitivity.h"
#include "layers/networks.h"
#include "train/networks.h"
#include "train/ptq/networks.h"

namespace fq::auto_quantize_test {
namespace {

using namespace test;

AutoQuantizeOptions within(double bits, std::vector<std::string> formats) {
  return {.constraint = {.effective_bits = bits},
          .formats = std::move(formats),
          .calibration_samples = 128,
          .score = DamageScore::loss};
}

AutoQuantizeOptions losing(double budget, std::vector<std::string> formats) {
  return {.constraint = {.accuracy_budget = budget},
          .formats = std::move(formats),
          .calibration_samples = 128,
          .score = DamageScore::loss};
}

double format_score(const PlannedLayer& layer, const std::string& format) {
  return std::ranges::find(layer.scores, format, &FormatScore::format)->damage.loss_change;
}

/// The least sum of scores of all assignments of formats to layers, each a group of its own.
double least_sum(const std::vector<PlannedLayer>& layers, double bits_left, std::size_t at = 0) {
  if (at == layers.size()) return bits_left >= -1e-9 ? 0 : std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  for (const auto& score : layers[at].scores)
    least =
        std::min(least, score.damage.loss_change +
                            least_sum(layers, bits_left - score.bits * double(layers[at].weights), at + 1));
  return least;
}

TEST(AutoQuantize, MinimizesTheScoreSumWithinTheBits) {
  auto data = digit_batches("test");
  for (const double bits : {2.0, 4.8, 16.0}) {
    auto model = trained("cnn");
    const auto plan = auto_quantize(*model, *data, within(bits, {"w2a2", "w4a4", "int8", "none"}));
    ASSERT_EQ(plan.layers.size(), 4U);
    double weights = 0, cost = 0, sum = 0;
    for (const auto& layer : plan.layers) {
      weights += double(layer.weights);
      cost += double(layer.weights) * layer.chosen().bits;
      sum += format_score(layer, layer.format);
      EXPECT_EQ(layer.group, &layer - plan.layers.data());
      EXPECT_EQ(format_score(layer, "none"), 0);
    }
    EXPECT_EQ(plan.gap, 0);
    EXPECT_LE(plan.effective_bits, bits);
    EXPECT_EQ(plan.effective_bits, cost / weights);
    EXPECT_NEAR(sum, least_sum(plan.layers, bits * weights), 1e-12) << bits;  // sums in another order
    EXPECT_NEAR(plan.predicted.loss_change, sum, 1e-12);
    const Evaluation whole = evaluate(*model, *data);
    EXPECT_EQ(plan.measured.loss_change, whole.loss - plan.reference.loss);
    EXPECT_EQ(plan.measured.accuracy_change, whole.accuracy - plan.reference.accuracy);
  }
}

TEST(AutoQuantize, ScoresMatchSensitivitiesOfTheUniformNetwork) {
  auto data = digit_batches("test");
  auto model = trained("cnn"), uniform = trained("cnn");
  const auto plan = auto_quantize(*model, *data, within(16, {"w4a4", "none"}));
  (void)quantize(*uniform, QuantConfig::preset("w4a4"), digit_shape());
  (void)calibrate(*uniform, *data, {.samples = 128});
  const auto report = sensitivity(*uniform, *data);
  ASSERT_EQ(report.layers.size(), plan.layers.size());
  for (const auto& layer : plan.layers) {
    const auto found = std::ranges::find(report.layers, layer.layer, &LayerSensitivity::layer);
    ASSERT_NE(found, report.layers.end());
    EXPECT_EQ(format_score(layer, "w4a4"), found->damage.loss_change) << layer.layer;
    EXPECT_EQ(layer.weights, found->weights);
  }
}

TEST(AutoQuantize, PlanAsConfigGivesTheSameNetwork) {
  auto data = digit_batches("test");
  auto model = trained("cnn");
  AutoQuantizeOptions options = within(5, {"w4a8", "fp8", "nvfp4", "int8_weight_only", "none"});
  options.config = R"({"target": "tensorrt", "algorithm": "percentile",
                       "rules": [{"pattern": "conv1.input_quantizer", "num_bits": 6}]})";
  const auto plan = auto_quantize(*model, *data, options);
  const std::string path = testing::TempDir() + "auto_quantize_plan.json";
  plan.save(path);
  const auto loaded = QuantizationPlan::load(path);
  EXPECT_EQ(loaded.to_json(), plan.to_json());
  EXPECT_EQ(QuantizationPlan::from_json(plan.to_json()).to_json(), plan.to_json());
  auto again = trained("cnn");
  const QuantConfig config = loaded.quant_config();
  (void)quantize(*again, config, digit_shape());
  (void)calibrate(*again, *data, {.amax = config.amax, .samples = 128, .rules = config.calibration});
  EXPECT_TRUE(bitwise_equal(predict(*again, *data), predict(*model, *data)));
  EXPECT_EQ(model_target(*model), Target::tensorrt);
  std::filesystem::remove(path);
}

TEST(AutoQuantize, FloatLayersStayFloatUnderARule) {
  auto data = digit_batches("test");
  auto model = trained("cnn");
  AutoQuantizeOptions options = within(kFloatWeightBits, {"w4a8", "none"});
  options.score = DamageScore::divergence;
  options.config = R"({"rules": [{"pattern": "conv1.input_quantizer", "num_bits": 6}]})";
  const auto plan = auto_quantize(*model, *data, options);
  ASSERT_EQ(plan.layers[0].layer, "conv1");
  EXPECT_EQ(plan.layers[0].format, "none");
  auto again = trained("cnn");
  (void)quantize(*again, plan.quant_config(), digit_shape());
  for (const auto& q : named_quantizers(*again)) {
    if (!q.name.starts_with("conv1.")) continue;
    EXPECT_FALSE(q.quantizer->enabled()) << q.name;
  }
}

TEST(AutoQuantize, ReadersOfOneTensorShareOneFormat) {
  const Tensor x = random_tensor({32, 1, 8, 8}, -1, 1);
  DataLoader data(std::make_shared<TensorDataset>(x, labels(32)), {.batch_size = 16, .shuffle = false});
  auto model = residual_net();
  const auto plan = auto_quantize(*model, data, within(5, {"w2a2", "int8", "none"}));
  std::map<std::string, const PlannedLayer*> layers;
  for (const auto& layer : plan.layers) layers[layer.layer] = &layer;
  ASSERT_EQ(layers.size(), 5U);
  EXPECT_EQ(layers["conv2"]->group, layers["add"]->group);  // both read the output of the pooling
  EXPECT_EQ(layers["conv2"]->format, layers["add"]->format);
  EXPECT_EQ(layers["gap"]->group, layers["add"]->group);  // no weight, and a tensor of its own: as the last
  EXPECT_NE(layers["conv1"]->group, layers["conv2"]->group);
  EXPECT_NE(layers["fc"]->group, layers["gap"]->group);
  EXPECT_EQ(plan.layers.front().layer, "conv1");
  EXPECT_EQ(plan.layers.back().layer, "fc");
  EXPECT_LE(plan.effective_bits, 5);
}

TEST(AutoQuantize, MinimizesBitsWithinAnAccuracyBudget) {
  auto data = digit_batches("test");
  double bits = 17;
  for (const double budget : {0.0, 0.01, 0.05, 1.0}) {
    auto model = trained("cnn");
    const auto plan = auto_quantize(*model, *data, losing(budget, {"w2a2", "w4a4", "int8", "none"}));
    EXPECT_GE(plan.measured.accuracy_change, -budget - 1e-12);
    EXPECT_EQ(plan.measured.accuracy_change, evaluate(*model, *data).accuracy - plan.reference.accuracy);
    EXPECT_LE(plan.effective_bits, bits) << budget;
    bits = plan.effective_bits;
  }
  EXPECT_EQ(bits, 2);  // with any accuracy allowed
}

TEST(AutoQuantize, UsesDivergenceWithoutLabels) {
  DataLoader data(std::make_shared<TensorDataset>(random_tensor({16, 1, 8, 8}, -1, 1)),
                  {.batch_size = 16, .shuffle = false});
  auto model = residual_net();
  AutoQuantizeOptions options = within(6, {"w4a4", "int8"});
  options.score = DamageScore::divergence;
  EXPECT_EQ(AutoQuantizeOptions{}.score, DamageScore::divergence);
  const auto plan = auto_quantize(*model, data, options);
  EXPECT_GT(plan.predicted.divergence, 0);
  EXPECT_TRUE(plan.to_json()["measured"]["loss_change"].is_null());
  EXPECT_EQ(QuantizationPlan::from_json(plan.to_json()).to_json(), plan.to_json());
  auto other = residual_net();
  EXPECT_THROW((void)auto_quantize(*other, data, within(6, {"w4a4", "int8"})), ArgumentError);
  EXPECT_THROW((void)auto_quantize(*other, data, losing(0.5, {"w4a4", "int8"})), ArgumentError);
}

TEST(AutoQuantize, RejectsInvalidInputAndKeepsTheFloatModel) {
  auto data = digit_batches("test");
  auto model = trained("cnn");
  const auto before = logits(*model);
  const auto expect_error = [&](const AutoQuantizeOptions& options, const std::string& message) {
    try {
      (void)auto_quantize(*model, *data, options);
      FAIL() << message;
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
      if (options.constraint.accuracy_budget != 0.0) {  // the loss of each layer is measured
        EXPECT_THROW(check_auto_quantize(*model, digit_shape(), options), ArgumentError) << message;
      }
    }
    EXPECT_TRUE(named_quantizers(*model).empty());
  };
  AutoQuantizeOptions both = within(4.8, {"int8"});
  both.constraint.accuracy_budget = 0.1;
  expect_error(both, "both constraints");
  expect_error({}, "no constraint");
  expect_error(within(0, {"int8"}), "effective_bits is 0");
  expect_error(within(17, {"int8"}), "effective_bits is 17");
  expect_error(within(std::numeric_limits<double>::quiet_NaN(), {"int8"}), "effective_bits is nan");
  expect_error(within(4.8, {"int8", "none"}), "the fewest that these formats reach are 8.0000");
  expect_error(losing(-0.1, {"int8"}), "accuracy_budget is -0.1");
  expect_error(losing(0, {"w2a2"}), "the formats of most bits lose");
  expect_error(within(4.8, {}), "there are no formats");
  expect_error(within(4.8, {"int9"}), "int9");
  expect_error(within(4.8, {"int8", "int8"}), "twice");
  expect_error(within(4.8, {"none"}), "no format quantizes a layer");
  expect_error(within(4.8, {"NVFP4_MLP_ONLY_CFG"}), "covers only");
  AutoQuantizeOptions config = within(8, {"int8"});
  config.config = R"({"preset": "int8"})";
  expect_error(config, "has a preset");
  config.config = "{";
  expect_error(config, "line 1: ");
  config.config = "[1]";
  expect_error(config, "no JSON object");
  config.config = R"({"traget": "ort"})";
  expect_error(config, "traget");
  config = within(8, {"int8"});
  config.score_samples = -1;
  expect_error(config, "-1 samples");
  EXPECT_EQ(logits(*model), before);
}

TEST(AutoQuantize, KeepsTheFloatModelAfterNaN) {
  Tensor x = random_tensor({32, 1, 8, 8}, -1, 1);
  x.mutable_data<float>()[20 * 64] = std::numeric_limits<float>::infinity();
  DataLoader data(std::make_shared<TensorDataset>(x, labels(32)), {.batch_size = 16, .shuffle = false});
  auto model = residual_net();
  EXPECT_THROW((void)auto_quantize(*model, data, within(8, {"int8"})), NumericError);
  EXPECT_THROW((void)auto_quantize(*model, data, within(8, {"int8_weight_only"})), NumericError);
  EXPECT_TRUE(named_quantizers(*model).empty());
  EXPECT_TRUE(model->training());
}

TEST(QuantizationPlan, RejectsInvalidPlans) {
  auto data = digit_batches("test");
  auto model = trained("mlp");
  const auto plan = auto_quantize(*model, *data, within(6, {"w4a8", "int8"})).to_json();
  const auto expect_error = [&](const std::function<void(nlohmann::ordered_json&)>& change) {
    auto broken = plan;
    change(broken);
    EXPECT_THROW((void)QuantizationPlan::from_json(broken), ArgumentError) << broken.dump().substr(0, 200);
  };
  expect_error([](auto& p) { p = nlohmann::ordered_json::array(); });
  expect_error([](auto& p) { p["kind"] = "fakequant-sensitivity"; });
  expect_error([](auto& p) { p["version"] = 2; });
  for (const auto& [key, value] : plan.items()) expect_error([&, k = key](auto& p) { p.erase(k); });
  for (const auto& [key, value] : plan["layers"][0].items())
    if (key != "bits" && !key.ends_with("_change") && key != "divergence")  // repeated in the scores
      expect_error([&, k = key](auto& p) { p["layers"][0].erase(k); });
  expect_error([](auto& p) { p["layers"][0]["format"] = "fp8"; });
  expect_error([](auto& p) { p["layers"][0]["scores"].clear(); });
  expect_error([](auto& p) { p["quantization"]["rules"][0]["preset"] = "int9"; });
  const std::string path = testing::TempDir() + "no_plan.json";
  write_file(path, plan.dump(1).substr(0, 400));
  EXPECT_THROW((void)QuantizationPlan::load(path), FileError);
  EXPECT_THROW((void)QuantizationPlan::load(path + ".missing"), FileError);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fq::auto_quantize_test
