#include "fakequant/train/loop/detail/weight_gradients.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "train/loop_run.h"

namespace fq::weight_gradients_test {
namespace {

using ::testing::ElementsAre;

/// Weights 1.25, -2.5, 3 and 300 on a grid of steps of 2, whose codes are 1, -1, 2 (1.5 is a tie) and 127.
struct OneLayer {
  std::shared_ptr<Sequential> model = std::make_shared<Sequential>();
  Variable weight;

  OneLayer() {
    model->add("fc", std::make_shared<Linear>(4, 1));
    quantize(*model, QuantConfig::preset("int8"), {1, 4});
    auto& layer = dynamic_cast<QuantLinear&>(model->at("fc"));
    layer.weight_quantizer()->set_amax(Tensor::from(std::vector<float>{254}, {1}));
    weight = layer.weight();
    weight.mutable_tensor().copy_from(Tensor::from(std::vector<float>{1.25F, -2.5F, 3, 300}, {1, 4}));
  }
  void give(const std::vector<float>& gradient) { weight.set_grad(Tensor::from(gradient, {1, 4})); }
  [[nodiscard]] std::vector<float> gradient() const { return weight.grad().to_vector<float>(); }
};

TEST(WeightGradients, GrowOnTheWayAwayFromTheCodeAndStayBeyondTheRange) {
  OneLayer net;
  detail::WeightGradients gradients(*net.model);
  net.give({8, -8, 0, 8});
  gradients.scale_elementwise(0.5);  // w / s - q: -0.375, -0.25, -0.5, beyond
  EXPECT_THAT(net.gradient(), ElementsAre(8 * (1 - 0.5F * 0.375F), -8 * (1 + 0.5F * 0.25F), 0, 8));
  net.give({1, 2, 3, 4});
  gradients.scale_elementwise(0);
  EXPECT_THAT(net.gradient(), ElementsAre(1, 2, 3, 4));
}

TEST(WeightGradients, PullWeightsToTheirCodes) {
  OneLayer net;
  detail::WeightGradients gradients(*net.model);
  net.give({1, 1, 1, 1});
  gradients.pull_to_codes(2);
  EXPECT_THAT(net.gradient(), ElementsAre(1 + 4 * -0.75F, 1 + 4 * -0.5F, 1 + 4 * -1.0F, 1));
  net.weight.zero_grad();
  gradients.pull_to_codes(2);  // of a weight that is not trained
  EXPECT_FALSE(net.weight.grad().defined());
}

TEST(WeightGradients, OfARunAreRefusedWhereNoWeightCanAndBeyondTheirNumbers) {
  EXPECT_THROW(detail::WeightGradients(*test::small_network(false)), ArgumentError);
  test::Plan run;
  run.options.ewgs = 0.5;
  EXPECT_THROW((void)run.make(), ArgumentError);
  run.quantized = true;
  EXPECT_NO_THROW((void)run.make());
  run.options.ewgs = 2.5;
  EXPECT_THROW((void)run.make(), ArgumentError);
}

/// The mean way of a weight to its code in steps, 0 to 0.5, at the end of a run with 3 bits.
double way_to_codes(const std::string& oscillation) {
  test::Plan run;
  run.quantized = true;
  run.prepare = [](Module& model) {
    set_quantizer_attributes(model, "*weight_quantizer", {{"num_bits", 3}});
  };
  run.options.average_decay = 0;
  run.options.oscillation = {.mode = oscillation, .weight = 0.5};
  const auto trainer = run.make();
  trainer->fit();
  const auto weights = trainer->state_dict().at("parameters/fc.weight").to_vector<float>();
  double sum = 0;
  for (const float w : weights) {
    const float steps = w / (2.0F / 3);  // an amax of 2
    sum += std::abs(steps - std::nearbyint(steps));
  }
  return sum / double(weights.size());
}

TEST(WeightGradients, DampenedWeightsComeToRestNearerToTheirCodes) {
  EXPECT_LT(way_to_codes("dampen"), 0.7 * way_to_codes("track"));
}

TEST(AmaxDecay, TakesLearnedRangesOfActivationsDown) {
  const auto range = [](double decay) {
    test::Plan run;
    run.quantized = true;
    run.options.amax = AmaxMode::learned;
    run.options.amax_decay = decay;
    const auto trainer = run.make();
    trainer->fit();
    return trainer->state_dict().at("parameters/fc.input_quantizer.amax").item();
  };
  EXPECT_LT(range(5), range(0));
  test::Plan run;
  run.quantized = true;
  run.options.amax_decay = 0.1;  // of ranges that are not learned
  EXPECT_THROW((void)run.make(), ArgumentError);
}

TEST(AmaxRate, MovesLearnedRangesAloneFaster) {
  const auto trained = [](double rate) {
    test::Plan run;
    run.quantized = true;
    run.options.epochs = 1;
    run.options.amax = AmaxMode::learned;
    run.options.amax_rate = rate;
    const auto trainer = run.make();
    const double before = trainer->state_dict().at("parameters/fc.input_quantizer.amax").item();
    trainer->fit();
    return std::abs(trainer->state_dict().at("parameters/fc.input_quantizer.amax").item() - before);
  };
  EXPECT_GT(trained(5), 2 * trained(1));
  test::Plan run;
  run.quantized = true;
  run.options.amax_rate = 2;  // of ranges that are not learned
  EXPECT_THROW((void)run.make(), ArgumentError);
  run.options.amax = AmaxMode::learned;
  EXPECT_NO_THROW((void)run.make());
  run.options.amax_rate = 0;
  EXPECT_THROW((void)run.make(), ArgumentError);
}

}  // namespace
}  // namespace fq::weight_gradients_test
