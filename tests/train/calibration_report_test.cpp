#include "fakequant/train/calibration/calibration_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/calibration/calibrate.h"
#include "layers/networks.h"

namespace fq::calibration_report_test {
namespace {

using namespace test;
using ::testing::HasSubstr;

std::shared_ptr<Graph> net(const std::string& method, const std::string& preset = "int8") {
  auto model = residual_net();
  for (auto& [name, value] : model->named_parameters()) {
    Variable parameter = value;
    parameter.mutable_tensor().copy_from(random_tensor(value.shape(), -0.5f, 0.5f, 7));
  }
  QuantConfig config = QuantConfig::preset(preset);
  config.algorithm = method;
  quantize(*model, config, {1, 1, 8, 8});
  return model;
}

Tensor normal_images(unsigned seed = 1) {
  Tensor out = random_tensor({64, 1, 8, 8}, -1, 1, seed);
  auto* x = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) x[i] = x[i] * x[i] * x[i] * 2;  // most are small
  return out;
}

DataLoader loader(const Tensor& images) {
  return DataLoader(std::make_shared<TensorDataset>(images), {.batch_size = 16, .shuffle = false});
}

QuantizerReport find(const std::vector<QuantizerReport>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &QuantizerReport::name);
  if (found == all.end()) throw ArgumentError(name + " is not reported");
  return *found;
}

RangeReport range(const QuantizerReport& q, const std::string& method) {
  return *std::ranges::find(q.methods, method, &RangeReport::method);
}

/// SQNR and the share beyond the range, of the values.
std::pair<double, double> measured(Module& model, const std::string& name, const Tensor& images) {
  DataLoader data = loader(images);
  const double sqnr = compute_quantization_mse(model, data, 0, name).front().sqnr_db();
  auto& q = dynamic_cast<TensorQuantizer&>(model.at(name));
  std::int64_t beyond = 0;
  for (const float x : images.to_vector<float>()) beyond += std::fabs(x) > q.amax().item() ? 1 : 0;
  return {sqnr, static_cast<double>(beyond) / static_cast<double>(images.numel())};
}

TEST(CalibrationReport, SqnrAndClippedShareMatchTheValues) {
  const Tensor images = normal_images();
  for (const char* preset : {"int8", "w4a4"})
    for (const double percentile : {100.0, 99.0}) {
      const auto model = net("one_pass", preset);
      DataLoader data = loader(images);
      calibrate(*model, data, {.amax = {.percentile = percentile}});
      const auto all = calibration_report(*model);
      for (const auto& error : compute_quantization_mse(*model, data)) {
        const auto q = find(all, error.name);
        ASSERT_TRUE(q.in_force.sqnr_db) << q.name << ": " << q.in_force.reason;
        EXPECT_NEAR(*q.in_force.sqnr_db, error.sqnr_db(), q.is_weight ? 1e-9 : 0.1) << q.name << percentile;
        EXPECT_EQ(q.count, error.elements) << q.name;
      }
      const auto first = find(all, "conv1.input_quantizer");
      const auto [sqnr, clipped] = measured(*model, first.name, images);
      EXPECT_NEAR(*first.in_force.clipped, clipped, 1e-3) << preset << percentile;
    }
}

TEST(CalibrationReport, ReportsTheAmaxOfEachMethod) {
  const Tensor images = normal_images();
  const auto model = net("one_pass");
  DataLoader data = loader(images);
  collect_ranges(*model, data);
  const auto all = calibration_report(*model, {.percentile = 99.5});
  for (const char* method : {"max", "one_pass", "one_pass_entropy", "one_pass_mse", "one_pass_octav"}) {
    const auto other = net(method);
    calibrate(*other, data, {.amax = {.percentile = 99.5}});
    const std::string_view text = method;
    const std::string reading =
        text == "one_pass" ? "percentile" : std::string(text.substr(text.rfind('_') + 1));
    const double tolerance =
        reading == "octav" ? 2e-3 : 0;  // the first bin separates zeros from small values
    for (const char* name : {"conv1.input_quantizer", "conv2.input_quantizer", "fc.input_quantizer"}) {
      const double amax = dynamic_cast<TensorQuantizer&>(other->at(name)).amax().item();
      const auto found = range(find(all, name), reading);
      EXPECT_NEAR(*found.highest, amax, tolerance * amax) << name << " " << method;
      EXPECT_EQ(*found.lowest, *found.highest);
      EXPECT_TRUE(found.clipped && found.sqnr_db) << found.reason;
    }
  }
}

TEST(CalibrationReport, UsesTheMethodRangeIfNoneIsSet) {
  const Tensor images = normal_images();
  DataLoader data = loader(images);
  for (const char* method : {"max", "percentile", "one_pass_mse", "two_pass_mse", "moving_average"}) {
    const auto model = net(method);
    const auto all = calibration_report(*model, data, 0, {.percentile = 99});
    const auto q = find(all, "conv2.input_quantizer");
    EXPECT_EQ(q.in_force.method, method);
    EXPECT_FALSE(q.is_chosen);
    const bool read = std::string_view(method) != "moving_average";
    EXPECT_EQ(q.in_force.highest.has_value(), read);
    if (read)
      EXPECT_EQ(q.in_force.reason, "");
    else
      EXPECT_THAT(q.in_force.reason, HasSubstr("moving_average is not read"));
    EXPECT_EQ(range(q, "max").highest, q.largest);
    EXPECT_EQ(q.format, "uint8");
  }
}

TEST(CalibrationReport, TwoPassesIncludeAHistogram) {
  DataLoader data = loader(normal_images());
  for (const std::string reading : {"percentile", "entropy", "mse"}) {
    const auto model = net(reading == "percentile" ? "two_pass" : "two_pass_" + reading);
    calibrate(*model, data);
    for (const auto& q : calibration_report(*model)) {
      if (q.is_weight) continue;
      EXPECT_GT(q.count, 0) << q.name;
      EXPECT_TRUE(q.in_force.sqnr_db) << q.in_force.reason;
      EXPECT_EQ(range(q, reading).highest, q.in_force.highest) << q.name;
    }
  }
}

TEST(CalibrationReport, DoesNotChangeTheModel) {
  const Tensor images = normal_images();
  const auto model = net("entropy");
  DataLoader data = loader(images);
  calibrate(*model, data);
  StateDict before, after;
  save_quantizers(*model, before);
  DataLoader others = loader(normal_images(2));
  const auto all = calibration_report(*model, others);
  save_quantizers(*model, after);
  EXPECT_TRUE(bitwise_equal(before, after));
  const auto q = find(all, "conv1.input_quantizer");
  EXPECT_TRUE(q.is_chosen);
  EXPECT_EQ(q.in_force.method, "entropy");
  EXPECT_EQ(*q.in_force.highest, dynamic_cast<TensorQuantizer&>(model->at(q.name)).amax().item());
}

TEST(CalibrationReport, ReadsWeightsDirectly) {
  const auto model = net("max");
  DataLoader data = loader(normal_images());
  calibrate(*model, data);
  const auto q = find(calibration_report(*model), "conv2.weight_quantizer");
  const auto amax = dynamic_cast<TensorQuantizer&>(model->at(q.name)).amax().to_vector<float>();
  EXPECT_TRUE(q.is_weight);
  EXPECT_EQ(*q.in_force.lowest, *std::ranges::min_element(amax));
  EXPECT_EQ(*q.in_force.highest, *std::ranges::max_element(amax));
  EXPECT_EQ(*q.in_force.clipped, 0);
  EXPECT_EQ(range(q, "max").highest, q.in_force.highest);
  EXPECT_GT(*range(q, "percentile").clipped, 0);
  EXPECT_LE(*range(q, "mse").highest, *q.largest);
  EXPECT_EQ(q.granularity, "axis 0");
  EXPECT_EQ(q.histogram.total(), q.count);
}

TEST(CalibrationReport, TwoPassWeightsHaveARangeBeforeCalibration) {
  const auto model = residual_net();
  (void)quantize(*model, QuantConfig::parse(R"({"preset": "int8",
      "rules": [{"pattern": "*weight_quantizer", "calib_method": "two_pass_mse"}]})"),
                 {1, 1, 8, 8});
  DataLoader data = loader(normal_images());
  const auto before = find(calibration_report(*model, data), "conv2.weight_quantizer");
  EXPECT_EQ(before.in_force.reason, "");
  calibrate(*model, data);
  const auto after = find(calibration_report(*model), "conv2.weight_quantizer");
  EXPECT_EQ(before.in_force.lowest, after.in_force.lowest);
  EXPECT_EQ(before.in_force.highest, after.in_force.highest);
}

TEST(CalibrationReport, UnknownValuesHaveAReason) {
  DataLoader data = loader(normal_images());
  const auto fresh = net("max");
  EXPECT_THAT(find(calibration_report(*fresh), "fc.input_quantizer").in_force.reason,
              HasSubstr("nothing was coll"));
  const auto model = net("max");
  calibrate(*model, data);
  const auto q = find(calibration_report(*model), "fc.input_quantizer");
  EXPECT_TRUE(q.in_force.highest && range(q, "max").highest && q.largest);
  EXPECT_FALSE(q.in_force.sqnr_db || q.in_force.clipped || range(q, "mse").highest);
  EXPECT_THAT(range(q, "mse").reason, HasSubstr("collected by max, which keeps no histogram"));
  const auto dynamic = net("max", "mxfp8");
  for (const auto& entry : calibration_report(*dynamic, data)) {
    EXPECT_FALSE(entry.in_force.highest) << entry.name;
    EXPECT_FALSE(range(entry, "mse").highest) << entry.name;
    EXPECT_NE(range(entry, "mse").reason, "") << entry.name;
    EXPECT_EQ(entry.in_force.sqnr_db.has_value(), entry.is_weight) << entry.name;
  }
  const auto e4m3 = net("one_pass", "fp8");
  calibrate(*e4m3, data);
  const auto first = find(calibration_report(*e4m3), "conv1.input_quantizer");
  EXPECT_TRUE(first.in_force.sqnr_db && range(first, "mse").sqnr_db);
  EXPECT_THAT(range(first, "entropy").reason, HasSubstr("(4, 3) is a float format"));
}

TEST(CalibrationReport, UnsignedFormatOfNegativeValuesHasNoStatistics) {
  const auto model = net("one_pass");
  DataLoader data = loader(normal_images());
  collect_ranges(*model, data);
  auto& q = dynamic_cast<TensorQuantizer&>(model->at("conv1.input_quantizer"));
  StateDict collected;
  q.observer().save(collected, "q");
  set_quantizer_attributes(*model, q.name(), {{"unsigned", true}});
  q.observer().load(collected, "q");
  q.set_amax(Tensor::scalar(1));
  const auto report = find(calibration_report(*model), q.name());
  EXPECT_FALSE(report.in_force.sqnr_db || report.in_force.clipped);
  EXPECT_THAT(report.in_force.reason, HasSubstr("below 0"));
}

TEST(CalibrationReport, ZerosAreExactUnderAnyRange) {
  const auto model = net("one_pass");
  DataLoader data = loader(Tensor::zeros({16, 1, 8, 8}));
  calibrate(*model, data);
  const auto q = find(calibration_report(*model), "conv1.input_quantizer");
  EXPECT_EQ(*q.largest, 0);
  EXPECT_EQ(q.count, 16 * 64);
  EXPECT_EQ(*q.in_force.clipped, 0);
  EXPECT_EQ(*q.in_force.sqnr_db, 0);
  for (const auto& method : q.methods) EXPECT_EQ(method.highest, 0.0) << method.method;
}

TEST(CalibrationReport, StateMatchesTheModel) {
  for (const char* method : {"one_pass", "entropy", "max"}) {
    const auto model = net(method);
    DataLoader data = loader(normal_images());
    collect_ranges(*model, data);
    const auto with_model = calibration_report(*model);
    const auto alone = calibration_report(calibration_state(*model, 64), "s.h5");
    EXPECT_EQ(alone.size(), 5U);
    for (const auto& q : alone) {
      const auto other = find(with_model, q.name);
      EXPECT_EQ(q.format, other.format) << q.name;
      EXPECT_EQ(q.in_force.highest, other.in_force.highest) << q.name;
      EXPECT_EQ(q.in_force.sqnr_db, other.in_force.sqnr_db) << q.name;
      EXPECT_EQ(q.minimum, other.minimum) << q.name;
    }
  }
}

TEST(CalibrationReport, RejectsInvalidStatesAndOptions) {
  const auto model = net("one_pass");
  DataLoader data = loader(normal_images());
  collect_ranges(*model, data);
  const auto message = [](StateDict state) -> std::string {
    try {
      (void)calibration_report(state, "s.h5");
    } catch (const FileError& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  const std::string prefix = "quantizers/conv1.input_quantizer";
  EXPECT_THAT(message(StateDict()), HasSubstr("s.h5 has no collected statistics"));
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, nlohmann::json>>{{"/settings", 3},
                                                           {"/calibrator_options", {{"axis", "x"}}},
                                                           {"/calibrator/largest", -1},
                                                           {"/calibrator/largest", "x"},
                                                           {"/calibrator/exponent", 9999},
                                                           {"/settings", {{"calib_method", "mx"}}}}) {
    StateDict state = calibration_state(*model, 64);
    state.set_attribute(prefix + name, value);
    EXPECT_THAT(message(state), HasSubstr("conv1.input_quantizer cannot be read")) << name << value;
  }
  EXPECT_THROW((void)calibration_report(*model, {.percentile = 101}), ArgumentError);
  EXPECT_THROW((void)calibration_report(*model, data, 0, {.percentile = -1}), ArgumentError);
  EXPECT_THROW((void)calibration_report(*residual_net()), ArgumentError);
}

}  // namespace
}  // namespace fq::calibration_report_test
