#include "fakequant/core/error.h"
#include "fakequant/train/loop/checkpoint.h"
#include "train/loop_run.h"

namespace fq::checkpoint_resume_test {
namespace {

using test::Folder;
using test::Plan;

/// The state at the end of a run that nothing disturbs.
StateDict undisturbed(Plan run) {
  run.options.checkpoint.out.clear();
  const auto trainer = run.make();
  trainer->fit();
  return trainer->state_dict();
}

struct Killed {};

/// Runs until `step`, where the run is stopped by the flag or dies; then once more from its last checkpoint.
StateDict disturbed(Plan run, std::int64_t step, bool dies) {
  std::atomic<bool> stop = false;
  run.options.execution.stop = &stop;
  auto first = run;
  first.callbacks.on_step = [&](const StepReport& report) {
    if (report.step != step) return;
    if (dies) throw Killed();
    stop = true;
  };
  try {
    EXPECT_TRUE(first.make()->fit().stopped);
  } catch (const Killed&) {
  }
  stop = false;
  const auto trainer = run.make();
  if (std::filesystem::exists(run.options.checkpoint.out))
    trainer->resume(load_checkpoint(run.options.checkpoint.out), run.options.checkpoint.out);
  EXPECT_FALSE(trainer->fit().stopped);
  return trainer->state_dict();
}

/// 18 steps of 3 epochs, ranges moving until step 13, batch norm frozen at step 10.
Plan busy_run(const Folder& folder, bool quantized) {
  Plan run;
  run.quantized = quantized;
  run.options.checkpoint.out = folder.file("run.h5");
  run.options.checkpoint.save_every = 4;
  run.options.ranges.amax = quantized ? AmaxMode::running : AmaxMode::frozen;
  run.options.ranges.amax_momentum = 0.1;
  run.options.ranges.freeze_amax_after = 13;
  run.options.batch_norm.freeze_bn_after = 10;
  return run;
}

TEST(Checkpoint, StoppedRunsResumeBitwise) {
  const Folder folder;
  for (const bool quantized : {false, true}) {
    const Plan run = busy_run(folder, quantized);
    const StateDict expected = undisturbed(run);
    for (const std::int64_t step : {1, 5, 6, 7, 11, 12, 17}) {
      std::filesystem::remove(run.options.checkpoint.out);
      EXPECT_TRUE(bitwise_equal(disturbed(run, step, false), expected)) << "stopped after step " << step;
    }
  }
}

TEST(Checkpoint, KilledRunsResumeBitwise) {
  const Folder folder;
  const Plan run = busy_run(folder, true);
  const StateDict expected = undisturbed(run);
  for (const std::int64_t step : {2, 4, 6, 9, 13, 18}) {
    std::filesystem::remove(run.options.checkpoint.out);
    EXPECT_TRUE(bitwise_equal(disturbed(run, step, true), expected)) << "killed at step " << step;
  }
}

TEST(Checkpoint, PlateauRunsResumeBitwise) {
  const Folder folder;
  Plan run = busy_run(folder, false);
  run.options.schedule = {.kind = "plateau", .step_factor = 0.5, .patience = 0};
  run.options.objective.metrics = {"f1"};
  run.options.optimizer.learning_rate = 0;  // nothing gets better
  const StateDict expected = undisturbed(run);
  EXPECT_EQ(expected.attribute("progress/plateau/factor"), 0.25);  // after the second and the third epoch
  for (const std::int64_t step : {5, 6, 11, 12, 17}) {
    std::filesystem::remove(run.options.checkpoint.out);
    EXPECT_TRUE(bitwise_equal(disturbed(run, step, false), expected)) << "stopped after step " << step;
  }
  run.validate = false;
  EXPECT_THROW((void)run.make(), ArgumentError);
}

TEST(Checkpoint, AccumulatedAndUnaveragedRunsResumeBitwise) {
  const Folder folder;
  for (const char* kind : {"sgd", "adam", "rmsprop", "nadam", "lion"}) {
    Plan run = busy_run(folder, false);
    run.options.update.accumulation = 4;  // 4 + 2 batches an epoch
    run.options.batch_norm.freeze_bn_after = 4;
    run.options.ranges.freeze_amax_after = 5;
    run.options.checkpoint.save_every = 1;
    run.options.update.average_decay = 0;
    run.options.optimizer.kind = kind;
    const StateDict expected = undisturbed(run);
    for (const std::int64_t step : {1, 2, 5}) {
      std::filesystem::remove(run.options.checkpoint.out);
      EXPECT_TRUE(bitwise_equal(disturbed(run, step, false), expected))
          << kind << " stopped after step " << step;
      std::filesystem::remove(run.options.checkpoint.out);
      EXPECT_TRUE(bitwise_equal(disturbed(run, step, true), expected)) << kind << " killed at step " << step;
    }
  }
}

TEST(Checkpoint, RunsLimitedByStepsResumeBitwise) {
  const Folder folder;
  Plan run = busy_run(folder, true);
  run.options.steps = 14;  // in the third epoch
  const StateDict expected = undisturbed(run);
  for (const std::int64_t step : {1, 6, 12, 13}) {
    std::filesystem::remove(run.options.checkpoint.out);
    EXPECT_TRUE(bitwise_equal(disturbed(run, step, false), expected)) << "stopped after step " << step;
  }
  const auto again = run.make();
  again->resume(load_checkpoint(run.options.checkpoint.out), run.options.checkpoint.out);
  EXPECT_EQ(again->fit().steps, 14);
}

TEST(Checkpoint, RunsLimitedByStepsContinueWithMoreSteps) {
  const Folder folder;
  Plan run = busy_run(folder, true);
  run.validate = false;
  run.options.schedule = {};
  run.options.ranges.freeze_amax_after = run.options.batch_norm.freeze_bn_after = 2;
  run.options.steps = 16;
  const StateDict expected = undisturbed(run);
  for (const std::int64_t first : {3, 6, 14}) {
    Plan shorter = run;
    shorter.options.steps = first;
    shorter.make()->fit();
    const auto longer = run.make();
    longer->resume(load_checkpoint(run.options.checkpoint.out), run.options.checkpoint.out);
    longer->fit();
    EXPECT_TRUE(bitwise_equal(longer->state_dict(), expected)) << "after " << first << " steps";
  }
}

TEST(Checkpoint, ResumedRunsReportTheWholeEpoch) {
  const Folder folder;
  Plan run = busy_run(folder, false);
  std::vector<double> losses;
  run.callbacks.on_epoch = [&](const EpochReport& report) {
    losses.push_back(report.loss);
    losses.push_back(report.accuracy);
  };
  undisturbed(run);
  const auto expected = losses;
  losses.clear();
  disturbed(run, 9, false);
  EXPECT_EQ(losses, expected);
}

/// Raises a flag when it is read.
class Alarm : public TensorDataset {
 public:
  Alarm(std::atomic<bool>& flag, int reads)
      : TensorDataset(Tensor::zeros({8, 1, 8, 8}), Tensor::zeros({8}, DType::i64)),
        flag_(flag),
        reads_(reads) {}
  Batch read(std::span<const std::int64_t> rows) const override {
    if (--reads_ == 0) flag_ = true;
    return TensorDataset::read(rows);
  }

 private:
  std::atomic<bool>& flag_;
  mutable std::atomic<int> reads_;
};

TEST(Checkpoint, ResumesARunStoppedInValidation) {
  const Folder folder;
  std::atomic<bool> stop = false;
  Plan run;
  run.options.checkpoint.out = folder.file("run.h5");
  run.options.execution.stop = &stop;
  const LoaderOptions order{.batch_size = 4, .shuffle = false, .prefetch = 0};
  const auto make = [&](int reads) {
    return std::make_unique<Trainer>(
        test::small_network(false), std::make_shared<DataLoader>(test::quadrants(96, 1), run.loader),
        run.options, std::make_shared<DataLoader>(std::make_shared<Alarm>(stop, reads), order));
  };
  const auto whole = make(-1);
  EXPECT_FALSE(whole->fit().stopped);
  const auto cut = make(3);  // in the second epoch's
  const auto result = cut->fit();
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.epochs, 1);
  stop = false;
  const auto rest = make(-1);
  rest->resume(load_checkpoint(run.options.checkpoint.out), run.options.checkpoint.out);
  EXPECT_FALSE(rest->fit().stopped);
  EXPECT_TRUE(bitwise_equal(rest->state_dict(), whole->state_dict()));
}

}  // namespace
}  // namespace fq::checkpoint_resume_test
