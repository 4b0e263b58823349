#include <gtest/gtest.h>

#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/loop/checkpoint.h"
#include "train/loop_run.h"

namespace fq::average_deployed_test {
namespace {

using test::Folder;
using test::Plan;

constexpr const char* kPreset = "w3a3";

void quantize_as_deployed(Module& model) {
  quantize(model, QuantConfig::preset(kPreset), {1, 1, 8, 8});
  DataLoader samples(test::quadrants(32, 3), test::sequential_options());
  calibrate(model, samples);
}

Evaluation evaluate_model(Module& model) {
  DataLoader validation(test::quadrants(40, 2), test::sequential_options());
  return evaluate(model, validation);
}

/// Loads the network of a file as an application does.
std::shared_ptr<Module> loaded(const std::string& path) {
  auto model = test::small_network(false);
  quantize(*model, QuantConfig::preset(kPreset), {1, 1, 8, 8});
  load_model_state(*model, load_checkpoint(path), path);
  return model;
}

class AverageDeployed : public ::testing::TestWithParam<AmaxMode> {};

TEST_P(AverageDeployed, FilesContainTheValidatedNetwork) {
  const Folder folder;
  Plan run;
  run.prepare = quantize_as_deployed;
  run.options.ranges.amax = GetParam();
  run.options.ranges.amax_momentum = 0.2;
  run.options.ranges.amax_gradient = AmaxGradient::lsq;
  run.options.ranges.learn_weight_ranges = GetParam() == AmaxMode::learned;
  run.options.optimizer.learning_rate = 0.02;
  run.options.checkpoint.out = folder.file("run.h5");
  int epochs = 0;
  run.callbacks.on_epoch = [&](const EpochReport& report) {
    const auto file = loaded(run.options.checkpoint.out);
    EXPECT_EQ(evaluate_model(*file).loss, report.validation->loss) << "epoch " << report.epoch;
    if (GetParam() == AmaxMode::learned) {
      const StateDict state = load_checkpoint(run.options.checkpoint.out);
      EXPECT_TRUE(bitwise_equal(state.at("quantizers/fc.input_quantizer/amax"),
                                state.at("parameters/fc.input_quantizer.amax")));
    }
    ++epochs;
  };
  const auto trainer = run.make();
  const TrainingResult result = trainer->fit();
  EXPECT_EQ(epochs, 3);
  EXPECT_EQ(evaluate_model(*loaded(run.options.checkpoint.out)).loss, result.validation->loss);
}

INSTANTIATE_TEST_SUITE_P(Ranges, AverageDeployed,
                         ::testing::Values(AmaxMode::frozen, AmaxMode::running, AmaxMode::learned));

}  // namespace
}  // namespace fq::average_deployed_test
