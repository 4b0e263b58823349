#include "fakequant/train/loop/oscillation.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/layers/modules/quant_modules.h"
#include "train/loop_run.h"

namespace fq::oscillation_test {
namespace {

using test::Plan;

struct OneLayer {
  std::shared_ptr<Sequential> model = std::make_shared<Sequential>();
  QuantLinear* layer = nullptr;

  OneLayer() {
    model->add("fc", std::make_shared<Linear>(4, 1));
    quantize(*model, QuantConfig::preset("int8"), {1, 4});
    layer = dynamic_cast<QuantLinear*>(&model->at("fc"));
    layer->weight_quantizer()->set_amax(Tensor::from(std::vector<float>{127}, {1}));  // steps of 1
  }
  void set(const std::vector<float>& values) {
    Variable w = layer->weight();
    w.mutable_tensor().copy_from(Tensor::from(values, {1, 4}));
  }
  [[nodiscard]] std::vector<float> values() const { return layer->weight().tensor().to_vector<float>(); }
};

TEST(Oscillation, OnlyTurnsCount) {
  OneLayer net;
  OscillationTracker tracker(*net.model, {.mode = "track", .momentum = 0.5});
  for (int i = 0; i < 6; ++i) {
    const float up = i % 2 == 0 ? 3.4F : 3.6F;  // 3 and 4 in turn; always up; within one code; at rest
    net.set({up, float(i), 7.0F + 0.05F * float(i), 2});
    tracker.update();
  }
  EXPECT_EQ(tracker.share().oscillating, 0.25);
  EXPECT_EQ(tracker.share().frozen, 0);
  const auto frequency = tracker.state_dict().at("fc.weight_quantizer/frequency").to_vector<float>();
  EXPECT_THAT(frequency, ::testing::ElementsAre(0.9375F, 0, 0, 0));  // four turns: the first change is none
}

TEST(Oscillation, FrozenWeightsStayAtTheirMeanCodeWhateverTheScaleBecomes) {
  OneLayer net;
  OscillationTracker tracker(*net.model, {.mode = "freeze", .momentum = 0.25, .threshold = 0.3});
  for (int i = 0; i < 4; ++i) {
    net.set({i % 2 == 0 ? 3.4F : 3.6F, 1, 2, -5});
    tracker.update();
  }
  EXPECT_EQ(tracker.share().frozen, 0.25);
  EXPECT_EQ(tracker.share().oscillating, 0);
  const float code = net.values()[0];
  EXPECT_TRUE(code == 3 || code == 4) << code;
  net.layer->weight_quantizer()->set_amax(Tensor::from(std::vector<float>{254}, {1}));
  net.set({90, 1, 2, -5});
  tracker.update();
  EXPECT_THAT(net.values(), ::testing::ElementsAre(2 * code, 1, 2, -5));
}

TEST(Oscillation, StateOfOtherWeightsIsRefused) {
  OneLayer net;
  OscillationTracker tracker(*net.model, {.mode = "track"});
  tracker.update();
  StateDict state = tracker.state_dict();
  OscillationTracker other(*net.model, {.mode = "track"});
  other.load_state(state);
  state.set("fc.weight_quantizer/code", Tensor::full({1, 4}, 300.0));
  EXPECT_THROW(other.load_state(state), ArgumentError);
  state.set("fc.weight_quantizer/code", Tensor::full({2, 4}, 3.0));
  EXPECT_THROW(other.load_state(state), ArgumentError);
  EXPECT_THROW(OscillationTracker(*test::small_network(false), {.mode = "track"}), ArgumentError);
  EXPECT_THROW(OscillationTracker(*net.model, {.mode = "freze"}), ArgumentError);
}

}  // namespace
}  // namespace fq::oscillation_test
