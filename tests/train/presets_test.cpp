// Every preset from a float network to a saved, trained, loaded one.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/loop/checkpoint.h"
#include "train/loop_run.h"

namespace fq::presets_test {
namespace {

using test::Folder;

std::shared_ptr<Module> network(const QuantConfig& config) {
  auto model = test::small_network(false, 0);
  quantize(*model, config, {1, 1, 8, 8});
  return model;
}

QuantConfig make_config(const std::string& preset, Arithmetic arithmetic) {
  QuantConfig config = QuantConfig::preset(preset);
  config.arithmetic = arithmetic;
  return config;
}

TrainerOptions short_run() {
  return {.epochs = 2, .seed = 1, .optimizer = {.learning_rate = 5e-3}, .schedule = {.kind = "constant"}};
}

Evaluation evaluated(Module& model) {
  DataLoader data(test::quadrants(40, 2), test::sequential_options());
  return evaluate(model, data);
}

/// Calibrates, trains, evaluates, saves, loads: the same loss. Training moves every weight.
void run_through(const QuantConfig& config, const TrainerOptions& options, const std::string& what) {
  auto model = network(config);
  DataLoader images(test::quadrants(96, 1), test::sequential_options());
  calibrate(*model, images);
  StateDict before;
  for (const auto& [name, parameter] : model->named_parameters())
    before.set(name, parameter.tensor().clone());
  Trainer trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), test::shuffled()), options);
  trainer.fit();
  const Evaluation after = evaluated(*model);
  EXPECT_TRUE(std::isfinite(after.loss)) << what;
  for (const auto& [name, parameter] : model->named_parameters()) {
    if (!name.ends_with("weight")) continue;
    EXPECT_FALSE(bitwise_equal(parameter.tensor(), before.at(name))) << what << " " << name;
  }
  const Folder folder;
  save_checkpoint(folder.file("c.h5"), model_state(*model, nlohmann::json()));
  auto loaded = network(config);
  load_model_state(*loaded, load_checkpoint(folder.file("c.h5")), "c.h5");
  EXPECT_EQ(evaluated(*loaded).loss, after.loss) << what;
}

/// Neither grids of one engine nor binary weights are ModelOpt's.
bool has_reference(const std::string& preset) {
  return QuantConfig::preset(preset).target == Target::ort && preset != "binary";
}

TEST(Presets, EachRunsFromFloatNetworkToLoadedCheckpoint) {
  for (const auto& preset : QuantConfig::preset_names())
    for (const Arithmetic arithmetic : {Arithmetic::deployed, Arithmetic::reference})
      if (arithmetic == Arithmetic::deployed || has_reference(preset))
        run_through(make_config(preset, arithmetic), short_run(),
                    preset + (arithmetic == Arithmetic::reference ? ", reference" : ""));
}

TEST(Presets, SequencesRunFromFloatNetworkToLoadedCheckpoint) {
  run_through(QuantConfig::parse(R"({"quant_cfg": {"*weight_quantizer": [{"num_bits": 4,
      "block_sizes": {"-1": 16}}, {"num_bits": [4, 3]}], "*input_quantizer": {"num_bits": [4, 3]}}})"),
              short_run(), "int4 and e4m3");
}

TEST(Presets, LearnedRangesAreTrainedSavedAndResumed) {
  for (const AmaxGradient gradient : {AmaxGradient::clip, AmaxGradient::lsq}) {
    TrainerOptions options = short_run();
    options.ranges.amax = AmaxMode::learned;
    options.ranges.amax_gradient = gradient;
    run_through(make_config("w4a4", Arithmetic::deployed), options, "learned");
  }
}

TEST(Presets, WeightRangesAreLearnedPerChannel) {
  const auto config = QuantConfig::parse(R"({"preset": "w4a4", "rules": [{"pattern": "*weight_quantizer",
      "learn_amax": true, "amax_gradient": "lsq"}]})");
  run_through(config, short_run(), "learned weights");
  auto model = network(config);
  DataLoader images(test::quadrants(96, 1), test::sequential_options());
  calibrate(*model, images);
  const auto parameters = model->named_parameters();
  const auto range =
      std::ranges::find(parameters, "conv.weight_quantizer.amax", &std::pair<std::string, Variable>::first);
  ASSERT_NE(range, parameters.end());
  EXPECT_EQ(range->second.shape(), (Shape{6}));
}

TEST(Presets, LearnedRangesChangeAndResumeBitwise) {
  const Folder folder;
  TrainerOptions options = short_run();
  options.ranges.amax = AmaxMode::learned;
  options.update.average_decay = 0.9;
  const auto made = [&](TrainerOptions chosen) {
    auto model = network(make_config("w4a4", Arithmetic::deployed));
    DataLoader images(test::quadrants(96, 1), test::sequential_options());
    calibrate(*model, images);
    auto data = std::make_shared<DataLoader>(test::quadrants(96, 1), test::shuffled());
    return std::pair(model, std::make_unique<Trainer>(model, data, std::move(chosen)));
  };
  auto [whole, run] = made(options);
  const float before =
      dynamic_cast<TensorQuantizer&>(whole->at("fc.input_quantizer")).amax().data<float>()[0];
  run->fit();
  const Tensor after = dynamic_cast<TensorQuantizer&>(whole->at("fc.input_quantizer")).amax();
  EXPECT_NE(after.data<float>()[0], before);
  std::atomic<bool> stop = false;
  TrainerOptions first = options;
  first.checkpoint.out = folder.file("c.h5");
  first.execution.stop = &stop;
  TrainerCallbacks callbacks;
  auto model = network(make_config("w4a4", Arithmetic::deployed));
  DataLoader images(test::quadrants(96, 1), test::sequential_options());
  calibrate(*model, images);
  callbacks.on_step = [&](const StepReport& report) { stop = report.step == 8; };
  Trainer half(model, std::make_shared<DataLoader>(test::quadrants(96, 1), test::shuffled()), first, nullptr,
               callbacks);
  EXPECT_TRUE(half.fit().stopped);
  auto [resumed, rest] = made(options);
  rest->resume(load_checkpoint(first.checkpoint.out), first.checkpoint.out);
  rest->fit();
  EXPECT_TRUE(bitwise_equal(dynamic_cast<TensorQuantizer&>(resumed->at("fc.input_quantizer")).amax(), after));
  EXPECT_EQ(evaluated(*resumed).loss, evaluated(*whole).loss);
}

TEST(Presets, LearnedRangesRequireAnInitialRange) {
  TrainerOptions options = short_run();
  options.ranges.amax = AmaxMode::learned;
  auto data = std::make_shared<DataLoader>(test::quadrants(96, 1), test::shuffled());
  EXPECT_THROW(Trainer(network(QuantConfig::preset("int8")), data, options), ArgumentError);
}

}  // namespace
}  // namespace fq::presets_test
