#include "fakequant/train/loop/detail/forward_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "fakequant/train/loop/checkpoint.h"
#include "train/loop_run.h"

namespace fq::forward_weights_test {
namespace {

using ::testing::ElementsAre;

/// Weights on a grid of steps of 2 with three codes on each side of 0.
struct OneLayer {
  std::shared_ptr<Sequential> model = std::make_shared<Sequential>();
  QuantLinear* layer = nullptr;

  OneLayer() {
    model->add("fc", std::make_shared<Linear>(5, 1));
    quantize(*model, QuantConfig::preset("w3a3"), {1, 5});
    layer = dynamic_cast<QuantLinear*>(&model->at("fc"));
    layer->weight_quantizer()->set_amax(Tensor::from(std::vector<float>{6}, {1}));
    Variable w = layer->weight();
    w.mutable_tensor().copy_from(Tensor::from(std::vector<float>{0.5F, 1.25F, -3, -4.5F, 9}, {1, 5}));
  }
  [[nodiscard]] std::vector<float> values() const { return layer->weight().tensor().to_vector<float>(); }
};

TEST(ForwardWeights, SoftenFromWhatTheyAreToTheirCodes) {
  OneLayer net;
  const auto before = net.values();
  detail::ForwardWeights weights(*net.model);
  weights.soften(1);
  EXPECT_THAT(net.values(), ElementsAre(0.5F, 1.25F, -3, -4.5F, 6));
  EXPECT_FALSE(net.layer->weight_quantizer()->quantizing());
  weights.restore();
  EXPECT_EQ(net.values(), before);
  EXPECT_TRUE(net.layer->weight_quantizer()->quantizing());
  weights.soften(0.5);  // twice as far from the middles 1, 1, -3 and -5
  EXPECT_THAT(net.values(), ElementsAre(0, 1.5F, -3, -4, 6));
  weights.restore();
  weights.soften(1e-9);
  EXPECT_THAT(net.values(), ElementsAre(0, 2, -3, -4, 6));  // the middle itself stays
  weights.restore();
}

TEST(ForwardWeights, NoiseLeavesAShareThatStepsDraw) {
  OneLayer net;
  const auto before = net.values();
  detail::ForwardWeights weights(*net.model);
  weights.leave_some(0, 1, 0);
  EXPECT_THAT(net.values(), ElementsAre(0, 2, -4, -4, 6));
  weights.restore();
  std::vector<std::vector<float>> drawn;
  for (const std::int64_t step : {0, 1, 2, 3, 0}) {
    weights.leave_some(0.5, 1, step);
    drawn.push_back(net.values());
    weights.restore();
    EXPECT_EQ(net.values(), before);
  }
  EXPECT_EQ(drawn[0], drawn[4]);
  EXPECT_TRUE(drawn[0] != drawn[1] || drawn[0] != drawn[2] || drawn[0] != drawn[3]);
}

TEST(ForwardWeights, RoundAtRandomToTheirNeighboursByTheWay) {
  OneLayer net;
  detail::ForwardWeights weights(*net.model);
  std::vector<double> mean(5);
  constexpr int kDraws = 400;
  for (int step = 0; step < kDraws; ++step) {
    weights.round_at_random(1, step);
    const auto values = net.values();
    weights.restore();
    EXPECT_TRUE(values[0] == 0 || values[0] == 2) << values[0];
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += values[i] / kDraws;
  }
  const double expected[] = {0.5, 1.25, -3, -4.5, 6};
  for (std::size_t i = 0; i < mean.size(); ++i)
    EXPECT_NEAR(mean[i], expected[i], 0.2) << i;  // four deviations of the mean of 400 draws of steps of 2
}

TEST(ForwardWeights, OfARunAreRefusedWhereNoWeightCanAndBeyondTheirNumbers) {
  test::Plan run;
  run.options.soft_share = 0.5;
  EXPECT_THROW((void)run.make(), ArgumentError);
  run.quantized = true;
  EXPECT_NO_THROW((void)run.make());
  run.options.quant_noise = 0.5;
  EXPECT_THROW((void)run.make(), ArgumentError);
  run.options.soft_share = 0;
  run.options.quant_noise = 1;
  EXPECT_THROW((void)run.make(), ArgumentError);
}

TEST(ForwardWeights, StoppedRunsGoOnToTheSameBits) {
  const test::Folder folder;
  for (const bool soft : {true, false}) {
    test::Plan run;
    run.quantized = true;
    (soft ? run.options.soft_share : run.options.quant_noise) = 0.6;
    const auto whole = run.make();
    whole->fit();
    run.options.out = folder.file("run.h5");
    std::filesystem::remove(run.options.out);
    std::atomic<bool> stop = false;
    run.options.stop = &stop;
    test::Plan first = run;
    first.callbacks.on_step = [&](const StepReport& report) { stop = report.step == 8; };
    EXPECT_TRUE(first.make()->fit().stopped);
    stop = false;
    const auto trainer = run.make();
    trainer->resume(load_checkpoint(run.options.out), run.options.out);
    trainer->fit();
    EXPECT_TRUE(bitwise_equal(trainer->state_dict(), whole->state_dict())) << soft;
  }
}

}  // namespace
}  // namespace fq::forward_weights_test
