#include "fakequant/core/detail/threads.h"
#include "fakequant/core/device.h"
#include "fakequant/core/error.h"
#include "fakequant/train/loop/average.h"
#include "fakequant/train/loop/evaluate.h"
#include "train/loop_run.h"

namespace fq::loop_test {
namespace {

using test::Plan;

StateDict after(const Plan& run) {
  const auto trainer = run.make();
  trainer->fit();
  return trainer->state_dict();
}

TEST(Loop, LearnsQuadrants) {
  Plan run;
  run.options.epochs = 8;
  const auto result = run.make()->fit();
  EXPECT_EQ(result.epochs, 8);
  EXPECT_EQ(result.steps, 48);
  ASSERT_TRUE(result.validation.has_value());
  EXPECT_EQ(result.validation->count, 40);
  EXPECT_GE(result.validation->accuracy, 0.95);
  EXPECT_FALSE(result.stopped);
}

TEST(Loop, LearnsQuantizedWithRunningRanges) {
  Plan run;
  run.quantized = true;
  run.options.epochs = 8;
  run.options.ranges.amax = AmaxMode::running;
  run.options.ranges.amax_momentum = 0.1;
  EXPECT_GE(run.make()->fit().validation->accuracy, 0.95);
}

TEST(Loop, IsDeterministic) {
  for (const int threads : {1, 2}) {
    detail::set_threads(threads);
    Plan run;
    run.quantized = true;
    run.options.ranges.amax = AmaxMode::running;
    EXPECT_TRUE(bitwise_equal(after(run), after(run))) << threads << " threads";
  }
  detail::set_threads(1);
}

TEST(Loop, AccumulationMatchesALargerBatch) {
  Plan whole, parts;
  for (Plan* run : {&whole, &parts}) {
    run->options.update.average_decay = 0;
    run->options.epochs = 2;
    run->options.batch_norm.freeze_bn_after = 0;  // batch statistics do depend on the batch
    run->options.optimizer = {.kind = "sgd", .learning_rate = 0.1};
  }
  whole.loader.batch_size = 36;  // 96 = 36 + 36 + 24
  parts.loader.batch_size = 12;
  parts.options.update.accumulation = 3;
  const auto run_without_dropout = [](const Plan& run) {
    const auto model = test::small_network(false, 0);
    Trainer trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), run.loader), run.options);
    EXPECT_EQ(trainer.fit().steps, 6);
    return model->parameters()[0].tensor().to_vector<float>();
  };
  const auto a = run_without_dropout(whole), b = run_without_dropout(parts);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);  // sums in another order
}

TEST(Loop, ReportsEveryStepAndEpoch) {
  Plan run;
  std::vector<StepReport> steps;
  std::vector<EpochReport> epochs;
  run.options.epochs = 2;
  run.callbacks.on_step = [&](const StepReport& report) { steps.push_back(report); };
  run.callbacks.on_epoch = [&](const EpochReport& report) { epochs.push_back(report); };
  run.make()->fit();
  ASSERT_EQ(steps.size(), 12u);
  ASSERT_EQ(epochs.size(), 2u);
  const auto schedule = make_schedule(run.options.schedule, 12);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step, static_cast<std::int64_t>(i + 1));
    EXPECT_EQ(steps[i].steps, 12);
    EXPECT_DOUBLE_EQ(steps[i].learning_rate, 5e-3 * schedule(static_cast<std::int64_t>(i)));
    EXPECT_GT(steps[i].images_per_second, 0);
    EXPECT_GE(steps[i].seconds_left, 0);
    EXPECT_TRUE(steps[i].loader_share >= 0 && steps[i].loader_share <= 1);
  }
  EXPECT_EQ(epochs[1].epoch, 1);
  EXPECT_TRUE(epochs[0].best);
  EXPECT_DOUBLE_EQ(epochs[1].loss, steps.back().loss);
}

TEST(Loop, StopsAfterTheStepLimit) {
  for (const std::int64_t count : {1, 6, 8, 12}) {
    Plan run;
    std::vector<EpochReport> epochs;
    run.options.epochs = 1;
    run.options.steps = count;
    run.callbacks.on_epoch = [&](const EpochReport& report) { epochs.push_back(report); };
    const auto result = run.make()->fit();
    EXPECT_EQ(result.steps, count);
    EXPECT_EQ(result.epochs, count / 6) << "whole ones";
    EXPECT_FALSE(result.stopped || result.stopped_early);
    ASSERT_EQ(std::ssize(epochs), (count + 5) / 6);
    EXPECT_EQ(epochs.back().epochs, std::ssize(epochs));
    EXPECT_TRUE(epochs.back().validation.has_value());
  }
}

TEST(Loop, StopsEarlyWithoutImprovement) {
  Plan run;
  run.options.epochs = 20;
  run.options.validation.patience = 2;
  run.options.optimizer.learning_rate = 0;  // nothing improves after the first epoch
  run.options.update.average_decay = 0;
  run.options.batch_norm.freeze_bn_after = 0;
  const auto result = run.make()->fit();
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.epochs, 3);
  EXPECT_EQ(result.best_epoch, 0);
}

TEST(Loop, EarlyStoppingPrefersAccuracyThenLoss) {
  EarlyStopping early(2);
  EXPECT_TRUE(early.update({.loss = 1, .score = 0.5}));
  EXPECT_FALSE(early.update({.loss = 0.5, .score = 0.4}));
  EXPECT_TRUE(early.update({.loss = 0.9, .score = 0.5}));
  EXPECT_FALSE(early.update({.loss = 0.9, .score = 0.5}));
  EXPECT_FALSE(early.should_stop());
  EarlyStopping resumed(2);
  resumed.load_state(early.state_dict());
  EXPECT_FALSE(resumed.update({.loss = std::nan(""), .score = 0.5}));
  EXPECT_TRUE(resumed.should_stop());
  EXPECT_EQ(resumed.best_epoch(), 2);
}

TEST(Loop, NaNInTheDataNamesSampleAndStep) {
  Tensor x = Tensor::zeros({32, 1, 8, 8});
  x.mutable_data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const auto data = std::make_shared<TensorDataset>(x, Tensor::zeros({32}, DType::i64));
  Trainer trainer(test::small_network(false),
                  std::make_shared<DataLoader>(data, LoaderOptions{.batch_size = 16, .shuffle = false}), {});
  try {
    trainer.fit();
    FAIL();
  } catch (const NumericError& error) {
    EXPECT_STREQ(
        error.what(),
        "[train] x of sample 0 of the data has nan: leave that sample out, or give it a value (step 0, "
        "epoch 1)");
  } catch (const Error& error) {
    FAIL() << error.what();
  }
}

TEST(Loop, NaNInAnActivationNamesQuantizerAndStep) {
  for (const AmaxMode mode : {AmaxMode::frozen, AmaxMode::running}) {
    Plan run;
    run.quantized = true;
    run.options.ranges.amax = mode;
    run.validate = false;
    const auto model = test::small_network(true);
    visit_quantizers(*model, [](const NamedQuantizer& q) { q.quantizer->set_amax(Tensor::scalar(2)); });
    run.options.update.average_decay = 0;
    run.callbacks.on_step = [&](const StepReport& report) {
      if (report.step == 2) model->at("bn").parameters()[0].mutable_tensor().mutable_data<float>()[0] = NAN;
    };
    Trainer trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), run.loader), run.options,
                    nullptr, run.callbacks);
    try {
      trainer.fit();
      FAIL();
    } catch (const NumericError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("fc.input_quantizer"), std::string::npos) << message;
      EXPECT_NE(message.find("(step 2, epoch 1)"), std::string::npos) << message;
    }
  }
}

TEST(Loop, AppliesPhaseChangesByStep) {
  Plan run;
  run.quantized = true;
  run.options = {
      .epochs = 2,
      .ranges = {.quant_start = 2, .amax = AmaxMode::running, .amax_momentum = 0.5, .freeze_amax_after = 6},
      .batch_norm = {.freeze_bn_after = 4}};
  const auto model = test::small_network(true);
  visit_quantizers(*model, [](const NamedQuantizer& q) { q.quantizer->set_amax(Tensor::scalar(2)); });
  auto* quantizer = dynamic_cast<TensorQuantizer*>(&model->at("conv.input_quantizer"));
  auto* weights = dynamic_cast<TensorQuantizer*>(&model->at("conv.weight_quantizer"));
  ASSERT_NE(quantizer, nullptr);
  ASSERT_NE(weights, nullptr);
  std::vector<float> amax, mean;
  run.callbacks.on_step = [&](const StepReport&) {
    amax.push_back(quantizer->amax().data<float>()[0]);
    mean.push_back(model->named_buffers()[0].second.data<float>()[0]);
    EXPECT_TRUE(quantizer->quantizing()) << "between steps the model is as deployed";
    EXPECT_FALSE(quantizer->params().running);
  };
  Trainer trainer(model, std::make_shared<DataLoader>(test::quadrants(96, 1), run.loader), run.options,
                  nullptr, run.callbacks);
  trainer.fit();
  ASSERT_EQ(amax.size(), 12u);
  for (std::size_t i = 1; i < 12; ++i) {
    EXPECT_EQ(amax[i] != amax[i - 1], i < 6) << "step " << i;
    EXPECT_EQ(mean[i] != mean[i - 1], i < 4) << "step " << i;
  }
  EXPECT_EQ(weights->amax().data<float>()[0], 2.0f);
}

TEST(Loop, BestEpochMustBeatTheStart) {
  Plan run;
  run.options.validation.validate_start = true;
  run.options.validation.restore_best = true;
  run.options.update.average_decay = 0;
  const TrainingResult learnt = run.make()->fit();
  ASSERT_TRUE(learnt.start.has_value());
  EXPECT_GE(learnt.best_epoch, 0);
  EXPECT_GT(learnt.best_score, learnt.start->score);

  run.options.optimizer = {.kind = "sgd", .learning_rate = 5, .momentum = 0};
  run.options.update.clip_norm = 0;
  run.options.epochs = 1;
  run.options.objective.label_smoothing = 0;
  const auto worse = run.make();
  const StateDict shared = worse->state_dict().sub("parameters");
  StateDict before;
  for (const auto& [name, tensor] : shared.tensors()) before.set(name, tensor.clone());
  const TrainingResult lost = worse->fit();
  ASSERT_LT(lost.validation->score, lost.start->score);  // a rate of 5 does harm
  EXPECT_EQ(lost.best_epoch, -1);
  EXPECT_EQ(lost.best_score, lost.start->score);
  EXPECT_TRUE(bitwise_equal(worse->state_dict().sub("parameters"), before));
}

TEST(Loop, RejectsSchedulesLongerThanTheRun) {
  for (const auto& change :
       std::vector<std::function<void(Plan&)>>{[](Plan& r) { r.options.ranges.quant_start = 19; },
                                               [](Plan& r) { r.options.batch_norm.freeze_bn_after = 19; },
                                               [](Plan& r) { r.options.ranges.freeze_amax_after = 19; },
                                               [](Plan& r) { r.options.schedule.warm_up = 19; }}) {
    Plan run;
    change(run);
    try {
      (void)run.make();
      ADD_FAILURE() << "it was taken";
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find("19, longer than the run of 18 steps"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Loop, TrainsInFloatBeforeQuantStart) {
  Plan floats, late;
  late.quantized = true;
  for (Plan* run : {&floats, &late}) {
    run->options.update.average_decay = 0;
    run->validate = false;
    run->options.ranges.quant_start = 18;  // all of the run
  }
  std::vector<std::vector<double>> losses(2);
  floats.callbacks.on_step = [&](const StepReport& report) { losses[0].push_back(report.loss); };
  late.callbacks.on_step = [&](const StepReport& report) { losses[1].push_back(report.loss); };
  floats.make()->fit();
  late.make()->fit();
  EXPECT_EQ(losses[0], losses[1]);
}

TEST(Loop, UpdatesWeightAverages) {
  const auto model = test::small_network(false);
  WeightAverage average(*model, 0.5);
  Variable weight = model->parameters()[0];
  const float first = weight.tensor().data<float>()[0];
  weight.mutable_tensor().mutable_data<float>()[0] = first + 1;
  average.update();  // decay min(0.5, 2/11)
  weight.mutable_tensor().mutable_data<float>()[0] = first + 2;
  average.update();  // min(0.5, 3/12)
  const float expected_one = first + 9.0f / 11;
  const float expected = expected_one + 0.75f * (first + 2 - expected_one);
  const auto version = weight.tensor().version();
  average.swap();
  EXPECT_NEAR(weight.tensor().data<float>()[0], expected, 1e-6);
  EXPECT_GT(weight.tensor().version(), version);
  EXPECT_THROW(average.update(), ArgumentError);
  average.swap();
  EXPECT_EQ(weight.tensor().data<float>()[0], first + 2);
  EXPECT_THROW(WeightAverage(*model, 1), ArgumentError);
}

TEST(Loop, AllocatesNoMemoryAfterTheFirstEpoch) {
  Plan run;
  run.loader.prefetch = 0;  // how far a thread is ahead is a matter of timing
  run.quantized = true;
  run.options.ranges.amax = AmaxMode::running;
  std::vector<std::int64_t> calls;
  run.callbacks.on_epoch = [&](const EpochReport&) { calls.push_back(memory_stats().system_calls); };
  run.make()->fit();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[2], calls[0]);
}

TEST(Loop, LoadsTheAveragesAtTheEnd) {
  Plan run;
  run.validate = false;
  const auto trainer = run.make();
  trainer->fit();
  const StateDict state = trainer->state_dict();
  EXPECT_FALSE(bitwise_equal(state.at("parameters/fc.weight"), state.at("average/parameters/fc.weight")));
  run.options.update.average_decay = 0;
  const StateDict plain = after(run);
  EXPECT_TRUE(bitwise_equal(plain.at("parameters/fc.weight"), state.at("average/parameters/fc.weight")));
}

TEST(Loop, RejectsInvalidOptions) {
  const auto expect_error = [](auto change) {
    Plan run;
    change(run);
    EXPECT_THROW((void)run.make(), ArgumentError);
  };
  expect_error([](Plan& r) { r.options.epochs = -1; });
  expect_error([](Plan& r) { r.options.update.accumulation = 0; });
  expect_error([](Plan& r) { r.options.update.clip_norm = -1; });
  expect_error([](Plan& r) { r.options.objective.label_smoothing = 1; });
  expect_error([](Plan& r) { r.options.optimizer.kind = "sdg"; });
  expect_error([](Plan& r) { r.options.optimizer.learning_rate = std::nan(""); });
  expect_error([](Plan& r) { r.options.schedule.kind = "cosinus"; });
  expect_error([](Plan& r) { r.options.update.average_decay = 1; });
  expect_error([](Plan& r) { r.options.validation.patience = -1; });
  expect_error([](Plan& r) { r.options.checkpoint.save_every = -1; });
  expect_error([](Plan& r) { r.options.batch_norm.freeze_bn_after = -2; });
  expect_error([](Plan& r) { r.options.ranges.quant_start = -1; });
  expect_error([](Plan& r) { r.options.ranges.amax_momentum = 0; });
  expect_error([](Plan& r) { r.options.checkpoint.model = "{"; });
  expect_error([](Plan& r) { r.options.validation.patience = 3, r.validate = false; });
  EXPECT_THROW(Trainer(nullptr, nullptr, {}), ArgumentError);
}

}  // namespace
}  // namespace fq::loop_test
