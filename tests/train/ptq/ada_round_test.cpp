#include <cmath>

#include "fakequant/core/error.h"
#include "fakequant/train/ptq/algorithms.h"
#include "fakequant/train/ptq/detail/input_statistics.h"
#include "fakequant/train/ptq/detail/matrices.h"
#include "fakequant/train/ptq/detail/weight_grid.h"
#include "layers/networks.h"
#include "train/ptq/layer_errors.h"

namespace fq::ada_round_test {
namespace {

using namespace test;

ptq::Report run(Module& model, const ptq::AdaRoundOptions& options = {}) {
  return ptq::ada_round(model, *digit_batches("train"), options);
}

TEST(AdaRound, ReducesTheErrorOfEveryLayerOnHeldOutImages) {
  for (const std::string name : {"cnn", "mlp"})
    expect_smaller_errors(name, integers(4, 0), [](Module& model) { return run(model); });
}

TEST(AdaRound, RoundsUpOrDown) {
  auto nearest = calibrated("mlp", integers(3, 0)), chosen = calibrated("mlp", integers(3, 0));
  (void)run(*chosen, {.iterations = 200});
  const auto before = list_layers(*nearest), after = list_layers(*chosen);
  for (std::size_t l = 0; l < before.size(); ++l) {
    const auto grid = ptq::weight_grid(before[l]);
    const auto w = before[l].weight.tensor().to_vector<float>(),
               q = after[l].weight.tensor().to_vector<float>();
    for (std::size_t i = 0; i < w.size(); ++i) EXPECT_LT(std::abs(q[i] - w[i]), grid.scales[i] * 1.00001f);
  }
  expect_weights_on_their_grid(*chosen);
}

TEST(AdaRound, ChoosesTheBetterCodeOfEveryWeight) {
  const auto original = trained("mlp");
  auto model = calibrated("mlp", integers(3, 0));
  (void)run(*model, {.iterations = 5});
  const auto before = list_layers(*original), after = list_layers(*model);
  auto data = digit_batches("train");
  const auto statistics = ptq::input_statistics(*original, *data, before, {}, "test");
  for (std::size_t l = 0; l < before.size(); ++l) {
    const auto grid = ptq::weight_grid(after[l]);
    Tensor d = after[l].weight.tensor().clone();
    const auto w = before[l].weight.tensor().to_vector<float>();
    auto* off = d.mutable_data<float>();
    for (std::size_t i = 0; i < w.size(); ++i) off[i] -= w[i];
    const Tensor product = ptq::times_gram(before[l], statistics.at(before[l].path), d);
    const auto* p = product.data<float>();
    const auto* gram = statistics.at(before[l].path).gram[0].data<float>();
    const auto columns = static_cast<std::size_t>(before[l].columns());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double step = off[i] > 0 ? -grid.scales[i] : grid.scales[i];
      const double own = gram[i % columns * (columns + 1)], change = step * (2 * double(p[i]) + step * own);
      if (off[i] != 0 && std::abs(off[i]) < grid.scales[i]) {  // else there is no code on the other side
        EXPECT_GE(change, -1e-4 * (step * step * own + std::abs(step * double(p[i]))))
            << before[l].path << " " << i;
      }
    }
  }
}

TEST(AdaRound, LowRankFactorsMatchTheProducts) {
  const Tensor x = random_tensor({6, 40}, -1, 1);
  Tensor gram = Tensor::zeros({40, 40});
  auto* g = gram.mutable_data<float>();
  const auto* v = x.data<float>();
  for (int r = 0; r < 6; ++r)
    for (int i = 0; i < 40; ++i)
      for (int j = 0; j < 40; ++j) g[i * 40 + j] += v[r * 40 + i] * v[r * 40 + j];
  EXPECT_EQ(ptq::low_rank_factor(gram, 1e-6).dim(0), 6);  // its rank
  EXPECT_LT(ptq::low_rank_factor(gram, 0.5).dim(0), 6);
  EXPECT_EQ(ptq::low_rank_factor(Tensor::zeros({4, 4}), 1e-6).dim(0), 0);
  const Tensor d = random_tensor({3, 40}, -1, 1, 2), product = ptq::GramProduct(gram, 1e-6)(d);
  for (int r = 0; r < 3; ++r)
    for (int i = 0; i < 40; ++i) {
      double exact = 0;
      for (int j = 0; j < 40; ++j) exact += double(d.data<float>()[r * 40 + j]) * double(g[i * 40 + j]);
      EXPECT_NEAR(product.data<float>()[r * 40 + i], exact, 1e-3);  // what f32 keeps of sums of 40
    }
}

TEST(AdaRound, IsDeterministic) {
  auto a = calibrated("mlp", integers(4, 8)), b = calibrated("mlp", integers(4, 8));
  (void)run(*a, {.iterations = 50});
  (void)run(*b, {.iterations = 50});
  EXPECT_EQ(logits(*a), logits(*b));
}

TEST(AdaRound, RejectsOptionsOutOfRangeAndModelsWithoutRanges) {
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
}  // namespace fq::ada_round_test
