#include "fakequant/train/optimizer.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/error.h"
#include "fakequant/core/ops/detail/updates.h"
#include "fakequant/layers/modules/module.h"

namespace fq::optimizer_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Variable start(DType dtype = DType::f64) {
  return Variable(Tensor::from({1.0, -2.0, 0.5, 3.0}).to(dtype), true);
}

Tensor gradient(int t, DType dtype = DType::f64) {
  return Tensor::from({0.1 * (t + 1), -0.3, 0.7 * (t - 1), 0.0}).to(dtype);
}

/// Four steps; what torch 2.15 gave for the same in f64.
void expect_torch(Optimizer& optimizer, Variable p, const std::vector<double>& expected) {
  for (int t = 0; t < 4; ++t) {
    p.set_grad(gradient(t));
    optimizer.step();
  }
  const auto values = p.tensor().to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-13) << i;
}

TEST(Optimizer, SgdMatchesTorch) {
  const Variable a = start(), b = start(), c = start();
  Sgd plain({{"p", a}}, {.learning_rate = 0.1});
  expect_torch(plain, a, {0.9, -1.88, 0.36, 3});
  Sgd momentum({{"p", b}}, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  expect_torch(momentum, b,
               {0.80557104631099996, -1.7108743456320001, 0.46265071058050006, 2.9728944699030002});
  Sgd nesterov({{"p", c}}, {.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true});
  expect_torch(nesterov, c,
               {0.72137713656205305, -1.6124858913514271, 0.32372798459111907, 2.9636705523141966});
}

TEST(Optimizer, AdamMatchesTorch) {
  const Variable a = start(), b = start();
  Adam adam({{"p", a}}, {.learning_rate = 0.01, .weight_decay = 0.1});
  expect_torch(adam, a, {0.96033112081350336, -1.9600045662071206, 0.50875668337280566, 2.9600076712906276});
  AdamW adamw({{"p", b}}, {.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1});
  expect_torch(adamw, b, {0.95658095065574245, -1.9520719533433346, 0.5063282302706823, 2.9880179880029996});
}

TEST(Optimizer, AdamFirstStepMatchesTheFormula) {
  const Variable p(Tensor::from({1.0f}), true);
  Adam adam({{"p", p}}, {.learning_rate = 0.5});
  Variable(p).set_grad(Tensor::from({-4.0f}));
  adam.step();  // m / (1 - b1) = g, sqrt(v / (1 - b2)) = |g|: the step is the learning rate
  EXPECT_FLOAT_EQ(p.tensor().data<float>()[0], 1.5f);
}

TEST(Optimizer, FloatMatchesDouble) {
  for (const bool decoupled : {false, true}) {
    const Variable narrow = start(DType::f32), wide = start();
    const AdamOptions options{.learning_rate = 0.01, .weight_decay = 0.1};
    const auto make = [&](const Variable& p) -> std::unique_ptr<Optimizer> {
      if (decoupled) return std::make_unique<AdamW>(NamedParameters{{"p", p}}, options);
      return std::make_unique<Sgd>(NamedParameters{{"p", p}}, SgdOptions{.momentum = 0.9, .nesterov = true});
    };
    const auto a = make(narrow), b = make(wide);
    for (int t = 0; t < 20; ++t) {
      Variable(narrow).set_grad(gradient(t % 5, DType::f32));
      Variable(wide).set_grad(gradient(t % 5));
      a->step();
      b->step();
    }
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(narrow.tensor().to(DType::f64).to_vector<double>()[i], wide.tensor().to_vector<double>()[i],
                  2e-6);  // 20 roundings
  }
}

TEST(Optimizer, GradientScaleMultipliesGradients) {
  const Variable a = start(), b = start();
  Sgd one({{"p", a}}, {.learning_rate = 0.1}), other({{"p", b}}, {.learning_rate = 0.05});
  Variable(a).set_grad(gradient(2));
  Variable(b).set_grad(gradient(2));
  one.step(0.5);
  other.step();
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ(a.tensor().to_vector<double>()[i], b.tensor().to_vector<double>()[i]);
}

TEST(Optimizer, RulesDefineGroups) {
  const Variable w = start(), b = start(), s = start();
  Sgd sgd({{"w.weight", w}, {"w.bias", b}, {"slow.weight", s}}, {.learning_rate = 0.1, .weight_decay = 1},
          {{"*.bias", 0.0, {}}, {"slow.*", {}, 0.5}});
  for (Variable p : {w, b, s}) p.set_grad(Tensor::zeros({4}, DType::f64));
  sgd.step();
  EXPECT_DOUBLE_EQ(w.tensor().data<double>()[0], 0.9);
  EXPECT_DOUBLE_EQ(b.tensor().data<double>()[0], 1.0);
  EXPECT_DOUBLE_EQ(s.tensor().data<double>()[0], 0.95);
}

struct Affine : Module {
  Affine()
      : weight(add_parameter("weight", Tensor::zeros({2, 3}))),
        bias(add_parameter("bias", Tensor::zeros({2}))) {}
  Variable weight, bias;
};

TEST(Optimizer, OnlyWeightsDecay) {
  const auto rules = decay_weights_only(Affine());
  ASSERT_EQ(rules.size(), 1u);
  EXPECT_EQ(rules[0].pattern, "bias");
  EXPECT_EQ(rules[0].weight_decay, 0.0);
}

TEST(Optimizer, SkipsParametersWithoutGradient) {
  const Variable a = start(), b = start();
  AdamW adam({{"a", a}, {"b", b}, {"alias", a}}, {.weight_decay = 0.5});
  EXPECT_EQ(adam.parameters().size(), 2u);
  Variable(a).set_grad(gradient(0));
  const auto version = b.tensor().version();
  adam.step();
  EXPECT_EQ(b.tensor().version(), version);
  EXPECT_EQ(adam.state_dict().attribute("steps").dump(), "[1,0]");
  adam.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Optimizer, WritingBumpsTheVersion) {
  const Variable p = start(DType::f32);
  const auto version = p.tensor().version();
  Sgd sgd({{"p", p}});
  Variable(p).set_grad(gradient(0, DType::f32));
  sgd.step();
  EXPECT_GT(p.tensor().version(), version);
}

TEST(Optimizer, ResumesBitwise) {
  const Variable a = start(DType::f32);
  AdamW first({{"p", a}}, {.weight_decay = 0.1});
  const auto step = [](Optimizer& o, Variable p, int t) {
    p.set_grad(gradient(t, DType::f32));
    o.step();
  };
  for (int t = 0; t < 3; ++t) step(first, a, t);
  const Variable b(a.tensor().clone(), true);
  AdamW second({{"p", b}}, {.weight_decay = 0.1});
  second.load_state(first.state_dict());
  step(first, a, 3);
  step(second, b, 3);
  EXPECT_TRUE(bitwise_equal(a.tensor(), b.tensor()));
  EXPECT_TRUE(bitwise_equal(first.state_dict(), second.state_dict()));
}

TEST(Optimizer, RejectsTheStateOfAnotherOptimizer) {
  const Variable p = start();
  Adam adam({{"p", p}});
  AdamW adamw({{"p", p}}), other({{"q", p}});
  EXPECT_THROW(adam.load_state(adamw.state_dict()), ArgumentError);
  try {
    other.load_state(adamw.state_dict());
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("q/mean"), std::string::npos) << error.what();
  }
}

TEST(Optimizer, RejectsInvalidOptions) {
  const NamedParameters p{{"p", start()}};
  EXPECT_THROW(Sgd(p, {.learning_rate = -1}), ArgumentError);
  EXPECT_THROW(Sgd(p, {.learning_rate = kNan}), ArgumentError);
  EXPECT_THROW(Sgd(p, {.momentum = 1}), ArgumentError);
  EXPECT_THROW(Sgd(p, {.nesterov = true}), ArgumentError);
  EXPECT_THROW(Sgd(p, {.weight_decay = -0.1}), ArgumentError);
  EXPECT_THROW(Adam(p, {.beta2 = 1}), ArgumentError);
  EXPECT_THROW(Adam(p, {.eps = -1}), ArgumentError);
  EXPECT_THROW(Sgd(p, {}, {{"*", -1.0, {}}}), ArgumentError);
  EXPECT_THROW(Sgd({{"p", Variable()}}), ArgumentError);
}

TEST(OptimizerOps, RejectMismatchedTensors) {
  const Tensor p = Tensor::zeros({2}), wrong = Tensor::zeros({3}), half = Tensor::zeros({2}, DType::f16);
  const std::vector<ops::SgdUpdate> shape{{p, wrong, {}, 0.1, 0}}, dtype{{half, half, {}, 0.1, 0}};
  const std::vector<ops::SgdUpdate> no_state{{p, p.clone(), {}, 0.1, 0}};
  EXPECT_THROW(ops::sgd_step(shape, {}), ArgumentError);
  EXPECT_THROW(ops::sgd_step(dtype, {}), ArgumentError);
  EXPECT_THROW(ops::sgd_step(no_state, {.momentum = 0.5}), ArgumentError);
  const std::vector<ops::AdamUpdate> early{{p, p.clone(), p.clone(), p.clone(), 0, 0.1, 0}};
  EXPECT_THROW(ops::adam_step(early, {}), ArgumentError);
}

TEST(OptimizerOps, AcceptChannelsLastGradients) {
  std::vector<float> values(24);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor g = Tensor::from(values, {2, 3, 2, 2});
  Tensor a = Tensor::zeros({2, 3, 2, 2}), b = Tensor::zeros({2, 3, 2, 2});
  const std::vector<ops::SgdUpdate> rows{{a, g, {}, 1, 0}},
      channels{{b, g.to(Layout::channels_last), {}, 1, 0}};
  ops::sgd_step(rows, {});
  ops::sgd_step(channels, {});
  EXPECT_TRUE(bitwise_equal(a, b));
}

TEST(OptimizerOps, AreInvariantToThreadCount) {
  const auto run = [](int threads) {
    detail::set_threads(threads);
    std::vector<float> values(100'003);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    const auto n = static_cast<std::int64_t>(values.size());
    const Variable p(Tensor::from(values, {n}), true), q(Tensor::from(values, {n}), true);
    AdamW adam({{"p", p}, {"q", q}}, {.weight_decay = 0.01});
    Variable(p).set_grad(Tensor::from(values, {n}));
    Variable(q).set_grad(Tensor::full({n}, 0.25));
    adam.step(clip_factor(gradient_norm({p, q}), 1));
    detail::set_threads(1);
    return std::pair(p.tensor(), gradient_norm({p, q}));
  };
  const auto one = run(1);
  for (const int threads : {2, 3, 4}) {
    const auto many = run(threads);
    EXPECT_TRUE(bitwise_equal(one.first, many.first)) << threads;
    EXPECT_EQ(one.second, many.second);
  }
}

TEST(Clip, ComputesNormAndFactor) {
  const Variable a(Tensor::zeros({2}), true), b(Tensor::zeros({1}), true), c(Tensor::zeros({1}), true);
  Variable(a).set_grad(Tensor::from({3.0f, 0.0f}));
  Variable(b).set_grad(Tensor::from({-4.0f}));
  EXPECT_DOUBLE_EQ(gradient_norm({a, b, c}), 5);
  EXPECT_DOUBLE_EQ(clip_factor(5, 1), 0.2);
  EXPECT_EQ(clip_factor(5, 6), 1);
  EXPECT_EQ(clip_factor(5, 0), 1);
  EXPECT_THROW((void)clip_factor(5, -1), ArgumentError);
  EXPECT_THROW((void)clip_factor(kNan, 1), NumericError);
}

TEST(OptimizerOps, InterpolateAndSwap) {
  std::vector<Tensor> a{Tensor::from({1.0f, 2.0f})}, b{Tensor::from({3.0f, -2.0f})};
  const auto version = a[0].version();
  ops::move_towards(a, b, 0.25);
  EXPECT_EQ(a[0].to_vector<float>(), (std::vector<float>{1.5f, 1.0f}));
  ops::swap_contents(a, b);
  EXPECT_EQ(a[0].to_vector<float>(), (std::vector<float>{3.0f, -2.0f}));
  EXPECT_EQ(b[0].to_vector<float>(), (std::vector<float>{1.5f, 1.0f}));
  EXPECT_GE(a[0].version(), version + 2);
  EXPECT_THROW(ops::move_towards(a, std::vector<Tensor>{}, 0.5), ArgumentError);
}

}  // namespace
}  // namespace fq::optimizer_test
