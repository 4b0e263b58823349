#include "fakequant/train/ptq/ada_round.h"

#include "fakequant/core/error.h"
#include "fakequant/train/ptq/weight_grid.h"
#include "train/ptq/layer_errors.h"

namespace fq {
namespace {

using namespace test;

ptq::Report run(Module& model, const ptq::AdaRoundOptions& options = {}) {
  return ptq::ada_round(model, *digit_batches("train"), options);
}

TEST(AdaRound, HasSmallerErrorsThanTheNearestCodesInEveryLayerOnHeldOutImages) {
  for (const std::string name : {"cnn", "mlp"})
    expect_smaller_errors(name, integers(4, 0), [](Module& model) { return run(model); });
}

TEST(AdaRound, RoundsUpOrDown) {
  auto nearest = calibrated("mlp", integers(3, 0)), chosen = calibrated("mlp", integers(3, 0));
  (void)run(*chosen, {.iterations = 200});
  const auto before = layers_of(*nearest), after = layers_of(*chosen);
  for (std::size_t l = 0; l < before.size(); ++l) {
    const auto grid = ptq::weight_grid(before[l]);
    const auto w = before[l].weight.tensor().to_vector<float>(),
               q = after[l].weight.tensor().to_vector<float>();
    for (std::size_t i = 0; i < w.size(); ++i) EXPECT_LT(std::abs(q[i] - w[i]), grid.scales[i] * 1.00001f);
  }
  expect_weights_on_their_grid(*chosen);
}

TEST(AdaRound, RepeatsItselfToTheBit) {
  auto a = calibrated("mlp", integers(4, 8)), b = calibrated("mlp", integers(4, 8));
  (void)run(*a, {.iterations = 50});
  (void)run(*b, {.iterations = 50});
  EXPECT_EQ(logits(*a), logits(*b));
}

TEST(AdaRound, RefusesOptionsOutOfRangeAndModelsWithoutRanges) {
  auto model = trained("mlp");
  (void)quantize(*model, integers(4, 0), digit_shape());
  EXPECT_THROW((void)run(*model), ArgumentError);
  (void)calibrate(*model, *digit_batches("test"));
  EXPECT_THROW((void)run(*model, {.iterations = 0}), ArgumentError);
  EXPECT_THROW((void)run(*model, {.warmup = 2}), ArgumentError);
  EXPECT_THROW((void)run(*model, {.beta_end = 0.5}), ArgumentError);
  EXPECT_THROW((void)run(*model, {.regularization = -1}), ArgumentError);
}

}  // namespace
}  // namespace fq
