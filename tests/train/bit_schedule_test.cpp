#include "fakequant/train/loop/bit_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/train/calibration/calibrate.h"
#include "fakequant/train/loop/checkpoint.h"
#include "train/loop_run.h"

namespace fq::bit_schedule_test {
namespace {

using test::Folder;
using test::Plan;

std::vector<int> bits_of(Module& model) {
  std::vector<int> out;
  for_each_quantizer(model, [&](const NamedQuantizer& q) {
    if (q.quantizer->enabled()) out.push_back(q.quantizer->descriptor().num_bits().bits());
  });
  return out;
}

/// 2 bits, but 8 in the last layer.
void make_w2a2(Module& model) {
  quantize(model, QuantConfig::preset("w2a2"), {1, 1, 8, 8});
  set_quantizer_attributes(model, "fc.*", {{"num_bits", 8}});
  DataLoader samples(test::quadrants(32, 3), test::in_order());
  calibrate(model, samples);
}

TEST(BitSchedule, StagesAreReadAndWritten) {
  const auto stages = parse_bit_stages("8:0.25,4,2");
  ASSERT_EQ(stages.size(), 3U);
  EXPECT_EQ(stages[0].share, 0.25);
  EXPECT_EQ(stages[2].bits, 2);
  EXPECT_EQ(to_string(stages), "8:0.25,4,2");
  for (const char* wrong : {"", "8,", "8;4", "4,8", "8,8", "9,2", "4,1", "8:1,2", "8:-1,2", "8:0.5,2:0.4",
                            "8:0,2", "8:nan,2", "8:x,2"})
    EXPECT_THROW((void)parse_bit_stages(wrong), ArgumentError) << wrong;
}

TEST(BitSchedule, EachQuantizerComesDownToItsOwnBitsAndStays) {
  const auto model = test::small_network(false);
  make_w2a2(*model);
  EXPECT_THROW(BitSchedule(*model, parse_bit_stages("8,4"), 30), ArgumentError);  // ends with more
  EXPECT_THROW(BitSchedule(*model, parse_bit_stages("8,4,2"), 2), ArgumentError);
  BitSchedule bits(*model, parse_bit_stages("4:0.5,3,2"), 40);
  EXPECT_EQ(bits.bits(), 2);
  EXPECT_TRUE(bits.advance(0));
  EXPECT_THAT(bits_of(*model), ::testing::ElementsAre(4, 4, 8, 8));
  EXPECT_FALSE(bits.advance(19));
  EXPECT_TRUE(bits.advance(20));
  EXPECT_FALSE(bits.finished());
  EXPECT_TRUE(bits.advance(30));
  EXPECT_THAT(bits_of(*model), ::testing::ElementsAre(2, 2, 8, 8));
  EXPECT_TRUE(bits.finished());
  EXPECT_FALSE(bits.advance(0));  // never back
  StateDict state = bits.state_dict();
  state.set_attribute("stage", 4);
  EXPECT_THROW(bits.load_state(state), ArgumentError);
}

TEST(BitSchedule, NetworksWithoutStaticIntegersAreRefused) {
  for (const char* preset : {"fp8", "nvfp4", "int4_blockwise"}) {
    const auto model = test::small_network(false);
    quantize(*model, QuantConfig::preset(preset), {1, 1, 8, 8});
    EXPECT_THROW(BitSchedule(*model, parse_bit_stages("8,4"), 30), ArgumentError) << preset;
  }
}

/// 18 steps: 8 bits until step 4, 4 until step 10, then 2.
Plan progressive_run() {
  Plan run;
  run.prepare = make_w2a2;
  run.options.amax = AmaxMode::learned;
  run.options.learn_weight_ranges = true;
  run.options.oscillation.mode = "track";
  run.options.progressive = parse_bit_stages("8:0.2,4:0.35,2");
  return run;
}

TEST(BitSchedule, RunsEndWithTheirOwnBitsAndKeepRangesThatFit) {
  Plan run = progressive_run();
  std::vector<int> bits;
  std::vector<bool> best;
  run.callbacks.on_epoch = [&](const EpochReport& report) {
    bits.push_back(report.bits);
    best.push_back(report.best);
  };
  const auto trainer = run.make();
  trainer->fit();
  EXPECT_THAT(bits, ::testing::ElementsAre(4, 2, 2));
  EXPECT_FALSE(best[0]);  // of other bits than those that are deployed
  EXPECT_TRUE(best[1]);
}

TEST(BitSchedule, LearnedRangesThatACalibrationWouldNotGiveAreRefused) {
  Plan run = progressive_run();
  run.prepare = [](Module& model) {
    quantize(model, QuantConfig::preset("w2a2"), {1, 1, 8, 8});
    for_each_quantizer(model, [](const NamedQuantizer& q) { q.quantizer->set_amax(Tensor::scalar(1)); });
  };
  EXPECT_THROW((void)run.make()->fit(), ArgumentError);
}

TEST(BitSchedule, StoppedRunsGoOnToTheSameBits) {
  const Folder folder;
  Plan run = progressive_run();
  const auto whole = run.make();
  whole->fit();
  run.options.out = folder.file("run.h5");
  for (const std::int64_t step : {1, 3, 4, 5, 10, 13}) {
    std::filesystem::remove(run.options.out);
    std::atomic<bool> stop = false;
    run.options.stop = &stop;
    Plan first = run;
    first.callbacks.on_step = [&](const StepReport& report) { stop = report.step == step; };
    EXPECT_TRUE(first.make()->fit().stopped);
    stop = false;
    const auto trainer = run.make();
    trainer->resume(load_checkpoint(run.options.out), run.options.out);
    trainer->fit();
    EXPECT_TRUE(bitwise_equal(trainer->state_dict(), whole->state_dict())) << "stopped after step " << step;
  }
}

}  // namespace
}  // namespace fq::bit_schedule_test
