#include <cmath>

#include <gmock/gmock.h>

#include "fakequant/core/error.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/linear.h"
#include "fakequant/train/optimizer.h"

namespace fq::adaptive_optimizers_test {
namespace {

Variable start(DType dtype = DType::f64) {
  return Variable(Tensor::from({1.0, -2.0, 0.5, 3.0}).to(dtype), true);
}
Tensor gradient(int t, DType dtype = DType::f64) {
  return Tensor::from({0.1 * (t + 1), -0.3, 0.7 * (t - 1), 0.0}).to(dtype);
}

/// Four steps in f64, and in f32, whose roundings stay small.
template <class T, class Options>
void expect_steps(const Options& options, const std::vector<double>& expected) {
  const Variable wide = start(), narrow = start(DType::f32);
  T a({{"p", wide}}, options), b({{"p", narrow}}, options);
  for (int t = 0; t < 4; ++t) {
    Variable(wide).set_grad(gradient(t));
    Variable(narrow).set_grad(gradient(t, DType::f32));
    a.step();
    b.step();
  }
  const auto values = wide.tensor().to_vector<double>();
  const auto floats = narrow.tensor().to(DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-13) << i;
    EXPECT_NEAR(floats[i], expected[i], 2e-6) << i;
  }
}

// torch 2.15, the same gradients in f64.
TEST(AdaptiveOptimizers, DampeningAndAmsgradMatchTorch) {
  expect_steps<Sgd>(SgdOptions{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .dampening = 0.5},
                    {0.883843346701375, -1.8003748304040001, 0.6008124064663125, 2.9812851403503746});
  const AdamOptions options{
      .learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.6, .weight_decay = 0.1, .amsgrad = true};
  expect_steps<Adam>(options,
                     {0.9622384681812174, -1.9599886189336448, 0.5070258543727738, 2.9599810287066974});
  expect_steps<AdamW>(options,
                      {0.9595962819478085, -1.9520719533433346, 0.5066043152210636, 2.9880179880029996});
}

TEST(AdaptiveOptimizers, RmsPropMatchesTorch) {
  expect_steps<RmsProp>(RmsPropOptions{.learning_rate = 0.01, .alpha = 0.9},
                        {0.8900242518988828, -1.909173851334084, 0.4814605614948599, 3.0});
  expect_steps<RmsProp>(
      RmsPropOptions{
          .learning_rate = 0.01, .alpha = 0.9, .momentum = 0.5, .centered = true, .weight_decay = 0.1},
      {0.8171262365436937, -1.8387253096984995, 0.49169636116468346, 2.8391554819771976});
}

TEST(AdaptiveOptimizers, AdagradMatchesTorch) {
  expect_steps<Adagrad>(AdagradOptions{.learning_rate = 0.1, .rate_decay = 0.2, .weight_decay = 0.1},
                        {0.7365478784610132, -1.7703379426699313, 0.48670451121322866, 2.771541377401266});
}

// NumPy, by the same formula: torch keeps the product of momenta in f32 and differs by 3e-10.
TEST(AdaptiveOptimizers, NAdamMatchesTorch) {
  expect_steps<NAdam>(NAdamOptions{.learning_rate = 0.02, .weight_decay = 0.1},
                      {0.9240872158402242, -1.9340613781990483, 0.48377175963331376, 2.934148355664777});
  expect_steps<NAdam>(
      NAdamOptions{
          .learning_rate = 0.02, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1, .decoupled = true},
      {0.9056213911579861, -1.9111009458785075, 0.4807157855924869, 2.9760719040479997});
}

// NumPy, by the papers' algorithms.
TEST(AdaptiveOptimizers, LionAndLambMatchTheirPapers) {
  expect_steps<Lion>(LionOptions{.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1},
                     {0.956065956011, -1.9520719520119998, 0.49796303799049985, 2.9880179880029996});
  expect_steps<Lamb>(LambOptions{.learning_rate = 0.01, .beta2 = 0.99, .weight_decay = 0.1},
                     {0.908514457810782, -1.8972210556603153, 0.5167024142247615, 2.974305192540852});
}

TEST(AdaptiveOptimizers, LambAcceptsZeroParameters) {
  const Variable p(Tensor::zeros({2}), true);
  Lamb lamb({{"p", p}}, {.learning_rate = 0.5});
  Variable(p).set_grad(Tensor::from({1.0F, -1.0F}));
  lamb.step();
  EXPECT_NEAR(p.tensor().data<float>()[0], -0.5F, 1e-6);  // eps
}

std::vector<OptimizerOptions> kinds() {
  std::vector<OptimizerOptions> all;
  for (const auto& kind : optimizer_kinds())
    all.push_back({.kind = kind, .learning_rate = 0.01, .weight_decay = 0.1});
  all.push_back({.kind = "sgd", .learning_rate = 0.01, .dampening = 0.5});
  all.push_back({.kind = "adam", .learning_rate = 0.01, .amsgrad = true});
  all.push_back({.kind = "rmsprop", .learning_rate = 0.01, .momentum = 0.5, .centered = true});
  return all;
}

void take(Optimizer& optimizer, int t, double scale = 1) {
  for (auto [name, p] : optimizer.parameters())
    p.set_grad(Tensor::full(p.shape(), (0.1 * (t % 3) - 0.05) / scale));
  optimizer.step(scale);
}

std::vector<float> values(const Module& model) {
  std::vector<float> out;
  for (const auto& p : model.parameters())
    for (const float value : p.tensor().to_vector<float>()) out.push_back(value);
  return out;
}

std::unique_ptr<Linear> layer() {
  const RandomScope seed(3, 0);
  return std::make_unique<Linear>(3, 2);
}

TEST(AdaptiveOptimizers, EachResumesFromItsState) {
  for (const auto& options : kinds()) {
    const auto whole = layer(), first = layer();
    const auto optimizer = make_optimizer(*whole, options), begun = make_optimizer(*first, options);
    EXPECT_EQ(optimizer->type(), options.kind);
    for (int t = 0; t < 5; ++t) take(*optimizer, t);
    for (int t = 0; t < 2; ++t) take(*begun, t);
    const auto resumed = make_optimizer(*first, options);
    resumed->load_state(begun->state_dict());
    for (int t = 2; t < 5; ++t) take(*resumed, t);
    EXPECT_EQ(values(*whole), values(*first)) << options.kind;
  }
}

TEST(AdaptiveOptimizers, EachAcceptsScaledGradients) {
  for (const auto& options : kinds()) {
    const auto plain = layer(), scaled = layer();
    const auto a = make_optimizer(*plain, options), b = make_optimizer(*scaled, options);
    for (int t = 0; t < 3; ++t) {
      take(*a, t);
      take(*b, t, 4);
    }
    EXPECT_EQ(values(*plain), values(*scaled)) << options.kind;  // a power of two
  }
}

TEST(AdaptiveOptimizers, RejectOptionsOutOfRange) {
  const NamedParameters p{{"p", start()}};
  EXPECT_THROW(Sgd(p, {.momentum = 0.9, .nesterov = true, .dampening = 0.1}), ArgumentError);
  EXPECT_THROW(Sgd(p, {.dampening = 0.1}), ArgumentError);
  EXPECT_THROW(Sgd(p, {.momentum = 0.9, .dampening = 2}), ArgumentError);
  EXPECT_THROW(RmsProp(p, {.alpha = 1}), ArgumentError);
  EXPECT_THROW(RmsProp(p, {.momentum = -1}), ArgumentError);
  EXPECT_THROW(Adagrad(p, {.rate_decay = -1}), ArgumentError);
  EXPECT_THROW(NAdam(p, {.momentum_decay = std::nan("")}), ArgumentError);
  EXPECT_THROW(Lion(p, {.beta1 = 1}), ArgumentError);
  EXPECT_THROW(Lamb(p, {.eps = -1}), ArgumentError);
  EXPECT_THROW((void)make_optimizer(*layer(), {.kind = "lyon"}), ArgumentError);
}

}  // namespace
}  // namespace fq::adaptive_optimizers_test
