#include "fakequant/network/qat.h"

#include <nlohmann/json.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/network/evaluation.h"
#include "folder.h"
#include "thrown.h"

namespace fq::qat_test {
namespace {

using test::error_message;
using test::Folder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kSamples = 96;

/// Two classes by the sign of the first of four numbers.
std::shared_ptr<const Dataset> points(float shift = 0) {
  std::vector<float> x;
  std::vector<std::int64_t> y;
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const float side = i % 2 == 0 ? 1.0F : -1.0F;
    for (int k = 0; k < 4; ++k) x.push_back(side * float(k + 1) / 4 + shift + float((i * 7 + k) % 5) / 50);
    y.push_back(i % 2);
  }
  return std::make_shared<TensorDataset>(Tensor::from(x, {kSamples, 4}), Tensor::from(y, {kSamples}));
}

Network float_network() {
  const auto spec = ModelSpec::parse(
      R"({"nodes": [{"type": "linear", "name": "fc1", "options": {"out_features": 8}}, {"type": "relu"},
                    {"type": "linear", "name": "fc2", "options": {"out_features": "classes"}}]})");
  return Network::create(spec, {4}, 2, 3);
}

Network trained() {
  Network out = float_network();
  TrainerOptions options;
  options.epochs = 8;
  options.optimizer.learning_rate = 0.02;
  (void)fit(out, std::make_shared<DataLoader>(points(), LoaderOptions{.batch_size = 16}), options);
  return out;
}

QatOptions short_run() {
  QatOptions options;
  options.training.epochs = 1;
  options.batches.batch_size = 16;
  options.calibration.samples = 32;
  return options;
}

StateDict values(const Network& network) {
  StateDict out;
  for (const auto& [name, value] : network.module().named_parameters()) out.set(name, value.tensor().clone());
  return out;
}

bool same(const StateDict& a, const StateDict& b) {
  if (a.names() != b.names()) return false;
  return std::ranges::all_of(a.tensors(), [&](const auto& entry) {
    return entry.second.template to_vector<float>() == b.at(entry.first).template to_vector<float>();
  });
}

TEST(Qat, TrainedNetworkIsItsTeacherAndStaysAccurate) {
  Network network = trained();
  QatOptions options = short_run();
  options.measure = true;
  std::vector<std::string> lines;
  options.choice_callback = [&](const std::string& line) { lines.push_back(line); };
  const QatResult result = qat(network, points(), options);
  EXPECT_TRUE(network.quantized());
  EXPECT_TRUE(result.self_distillation);
  EXPECT_EQ(result.training.epochs, 1);
  ASSERT_TRUE(result.before && result.after);
  EXPECT_EQ(result.before->in_float, 1);
  EXPECT_FALSE(result.after->lost(*result.before));
  EXPECT_EQ(evaluate(network, points()).accuracy, 1);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(lines[0], StartsWith("preset int8, target ort"));
  EXPECT_THAT(lines[1], HasSubstr("towards the float network"));
}

TEST(Qat, UntrainedNetworkHasNoTeacher) {
  Network network = float_network();
  QatOptions options = short_run();
  EXPECT_FALSE(prepare_qat(network, points(), options).self_distillation);
  options.self_distillation = true;
  EXPECT_NE(prepare_qat(network, points(), options).training.objective.distillation.teacher, nullptr);
}

TEST(Qat, IsDeterministic) {
  Network one = trained(), other = one.clone();
  qat(one, points(), short_run());
  qat(other, points(), short_run());
  EXPECT_TRUE(same(values(one), values(other)));
}

TEST(Qat, RestoresARunInsteadOfCalibrating) {
  Network network = trained();
  QatOptions options = short_run();
  bool called = false;
  options.restore = [&](Network& quantized) {
    called = true;
    EXPECT_FALSE(uncalibrated_quantizers(quantized.module()).empty());
  };
  (void)prepare_qat(network, points(), options);
  EXPECT_TRUE(called);
}

TEST(Qat, TargetAndScaleOverrideTheConfig) {
  Network network = trained();
  QatOptions options = short_run();
  options.target = "none";
  options.scale = "pow2";
  (void)prepare_qat(network, points(), options);
  EXPECT_EQ(network.identity().config().target, Target::none);
  EXPECT_TRUE(network.identity().config().pow2);
  EXPECT_EQ(network.identity().preset(), "int8");
}

TEST(Qat, OptionsOverrideTheFormatDefaults) {
  Network network = trained();
  QatOptions options = short_run();
  options.config = "w4a4";
  options.choices.amax = AmaxMode::frozen;
  options.choices.learning_rate = 0.25;
  const QatPlan plan = prepare_qat(network, points(), options);
  EXPECT_EQ(plan.training.ranges.amax, AmaxMode::frozen);
  EXPECT_EQ(plan.training.optimizer.learning_rate, 0.25);
}

TEST(QuantizationConfig, PresetOptionsRequireAName) {
  EXPECT_EQ(quantization_config("w2a2"), preset_config("w2a2"));
  EXPECT_EQ(quantization_config(R"({"preset": "w2a2"})"), nlohmann::ordered_json({{"preset", "w2a2"}}));
  EXPECT_THAT(error_message([] { return quantization_config(R"({"preset": "int8"})", {.edge_bits = 8}); }),
              HasSubstr("require the name of a preset"));
  EXPECT_THAT(error_message([] { return quantization_config("int9"); }), HasSubstr("int9"));
}

TEST(CalibrateNetwork, MergedStatesMatchOneRun) {
  const Folder folder;
  const auto data = points(), more = points(0.5F);
  const auto collected = [&](const std::string& name, const auto& samples) {
    Network network = float_network();
    fold_and_quantize(network, preset_config("int8"));
    const auto seen = calibrate(network, samples, {.samples = 0, .keep_shares = true});
    EXPECT_EQ(seen.count, kSamples);
    EXPECT_EQ(seen.shares.size(), 1U);
    save_calibration(network.module(), folder.file(name), seen.count, seen.shares);
    return network;
  };
  (void)collected("one.h5", data);
  const Network largest = collected("two.h5", more);
  Network merged = float_network();
  fold_and_quantize(merged, preset_config("int8"));
  NetworkCalibrateOptions options{.states = {folder.file("one.h5"), folder.file("two.h5")}};
  EXPECT_EQ(calibrate(merged, nullptr, options).count, 2 * kSamples);
  const auto range = [](const Network& network) {
    return named_quantizers(network.module()).front().quantizer->amax().item();
  };
  EXPECT_EQ(range(merged), range(largest));
  options.states.push_back(folder.file("one.h5"));
  std::vector<std::string> lines;
  options.progress_callback = [&](const std::string& line) { lines.push_back(line); };
  EXPECT_EQ(calibrate(merged, nullptr, options).count, 2 * kSamples);
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("is not counted again")));
}

TEST(CalibrateNetwork, RunsTheAlgorithmOfTheConfig) {
  Network network = trained();
  fold_and_quantize(network, nlohmann::ordered_json::parse(
                                 R"({"preset": "w4a8", "target": "none", "weight_algorithm": "gptq"})"));
  std::vector<std::string> layers;
  NetworkCalibrateOptions options;
  options.weights_callback = [&](const std::string& algorithm, const ptq::Report& report) {
    EXPECT_EQ(algorithm, "gptq");
    for (const auto& layer : report.layers) layers.push_back(layer.path);
  };
  (void)calibrate(network, points(), options);
  EXPECT_THAT(layers, ::testing::SizeIs(2));
}

TEST(AutoQuantizeNetwork, StoresThePlanInTheIdentity) {
  Network network = trained();
  DataLoader loader(points(), {.batch_size = 32, .shuffle = false});
  AutoQuantizeOptions options;
  options.constraint.effective_bits = 6;
  const QuantizationPlan plan = auto_quantize(network, loader, options);
  EXPECT_EQ(nlohmann::json::parse(network.identity().quantization), nlohmann::json::parse(plan.config));
  EXPECT_TRUE(uncalibrated_quantizers(network.module()).empty());
  EXPECT_EQ(evaluate(network.clone(), points()).loss, evaluate(network, points()).loss);
}

TEST(CalibrateNetwork, RejectsAFloatNetwork) {
  Network network = float_network();
  EXPECT_THAT(error_message([&] { return calibrate(network, points()); }),
              HasSubstr("[identity] quantization"));
}

TEST(EvaluateNetwork, RequiresRangesAndMatchingData) {
  Network network = float_network();
  EXPECT_EQ(evaluate(network, points()).count, kSamples);
  const auto wide = std::make_shared<TensorDataset>(Tensor::zeros({4, 5}), Tensor::zeros({4}, DType::i64));
  EXPECT_THAT(error_message([&] { return evaluate(network, wide); }), HasSubstr("the network takes [4]"));
  network.quantize(preset_config("int8"));
  EXPECT_THAT(error_message([&] { return evaluate(network, points()); }), HasSubstr("not calibrated"));
}

TEST(Predictions, PartsCoverAllSamples) {
  Network network = trained();
  qat(network, points(), short_run());
  std::int64_t logits = 0, codes = 0, parts = 0;
  const auto use = [&](const StateDict& part) {
    ++parts;
    logits += part.at("logits").dim(0);
    const StateDict recorded = part.sub("codes");
    for (const auto& name : recorded.names()) codes += recorded.at(name).numel();
  };
  PredictionParts predictions(network, {.codes = true, .part_bytes = 1}, use);
  DataLoader loader(points(), {.batch_size = 48, .shuffle = false});
  const NoGrad no_grad;
  network.module().eval();
  while (const auto batch = loader.next())
    predictions.add(batch->x, network.module()(Variable(batch->x)).tensor());
  predictions.finish();
  EXPECT_EQ(parts, 2);
  EXPECT_EQ(logits, kSamples);
  EXPECT_EQ(codes, kSamples * (4 + 8));  // the inputs of two layers
}

TEST(Findings, ReportAZeroRange) {
  Network network = trained();
  qat(network, points(), short_run());
  EXPECT_TRUE(quantizer_findings(network, points()).empty());
  named_quantizers(network.module()).front().quantizer->set_amax(Tensor::scalar(0));
  EXPECT_FALSE(quantizer_findings(network, points()).empty());
  EXPECT_EQ(export_problem(trained()), "");
}

}  // namespace
}  // namespace fq::qat_test
