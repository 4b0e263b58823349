// Probabilities that training leaves out.

#include <cmath>

#include <gtest/gtest.h>

#include "fakequant/core/detail/threads.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/random.h"
#include "fakequant/layers/modules/attention.h"
#include "layers/eighths.h"

namespace fq::attention_dropout_test {
namespace {

using test::eighths;

/// Attention with grouped heads written as separate operators. Dropout uses this thread's random numbers.
Variable dropped_by_hand(Module& layer, const Variable& x, double p) {
  const auto heads = [&](const char* name, std::int64_t count) {
    const Variable y = layer.at(name)(x);
    return ops::transpose(ops::reshape(y, {x.dim(0), x.dim(1), count, 4}), {0, 2, 1, 3});
  };
  const Variable q = heads("q_proj", 2), k = heads("k_proj", 1), v = heads("v_proj", 1);
  const std::int64_t n = x.dim(0), tokens = x.dim(1);
  const Variable scores = ops::matmul(ops::reshape(q, {n, 1, 2 * tokens, 4}), k, true);
  const Variable weights = ops::dropout(
      ops::attention_weights(ops::reshape(scores, {n, 2, tokens, tokens}), {.causal = true, .scale = 0.5}), p,
      true);
  const Variable y = ops::matmul(ops::reshape(weights, {n, 1, 2 * tokens, tokens}), v);
  return layer.at("out_proj")(
      ops::reshape(ops::transpose(ops::reshape(y, {n, 2, tokens, 4}), {0, 2, 1, 3}), {n, tokens, 8}));
}

TEST(AttentionLayer, DropsProbabilitiesInTrainingOnly) {
  const auto make = [](double p) {
    const RandomScope scope(3, 0);
    return Attention({.width = 8, .heads = 2, .kv_heads = 1, .causal = true, .dropout = p});
  };
  Attention layer = make(0.5), whole = make(0);
  const auto run = [&](const Variable& x, std::uint64_t seed = 5) {
    const RandomScope scope(seed, 0);
    return layer(x);
  };
  const auto bits = [](const Variable& y) { return y.tensor().to_vector<float>(); };
  const Variable x = eighths({2, 9, 8}, 1);
  layer.eval();
  EXPECT_EQ(bits(run(x)), bits(whole(x)));
  layer.train();
  const auto dropped = bits(run(x));
  EXPECT_NE(dropped, bits(whole(x)));
  EXPECT_NE(dropped, bits(run(x, 6)));
  const int before = detail::threads();
  detail::set_threads(3);
  EXPECT_EQ(bits(run(x)), dropped);
  detail::set_threads(before);
  const RandomScope scope(5, 0);
  EXPECT_EQ(bits(dropped_by_hand(layer, x, 0.5)), dropped);
}

/// With the same numbers drawn each time, along one direction.
TEST(AttentionLayer, GradientsExcludeDroppedProbabilities) {
  Attention layer({.width = 8, .heads = 2, .kv_heads = 1, .causal = true, .dropout = 0.5});
  layer.train();
  const Tensor seed = eighths({2, 9, 8}, 4).tensor(), along = eighths({2, 9, 8}, 7).tensor();
  const auto weighted_sum = [&](double step) {
    const RandomScope scope(5, 0);
    Tensor x = eighths({2, 9, 8}, 1).tensor().clone();
    for (std::int64_t i = 0; i < x.numel(); ++i)
      x.mutable_data<float>()[i] += static_cast<float>(step) * along.data<float>()[i];
    const Tensor y = layer(Variable(x)).tensor();
    double sum = 0;
    for (std::int64_t i = 0; i < y.numel(); ++i) sum += double(y.data<float>()[i]) * seed.data<float>()[i];
    return sum;
  };
  const Variable x(eighths({2, 9, 8}, 1).tensor().clone(), true);
  {
    const RandomScope scope(5, 0);
    layer(x).backward(seed);
  }
  double found = 0;
  const Tensor gradient = x.grad();
  for (std::int64_t i = 0; i < gradient.numel(); ++i)
    found += double(gradient.data<float>()[i]) * along.data<float>()[i];
  const double expected = (weighted_sum(1e-2) - weighted_sum(-1e-2)) / 2e-2;
  EXPECT_NEAR(found, expected, 2e-3 * std::abs(expected));
}

}  // namespace
}  // namespace fq::attention_dropout_test
