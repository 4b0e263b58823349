#include "fakequant/core/ops/recurrent.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/recurrent_formulas.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/ops/shape.h"
#include "vector_patterns.h"

namespace fq::recurrent_test {
namespace {

using detail::RecurrentCell;
using ops::DynamicRange;

constexpr std::int64_t kSteps = 3, kIn = 5, kWidth = 3, kRows = 4 * kWidth;

/// (i * factor) % modulus - offset, times unit. The script that computed the engine's outputs uses the same
/// formula.
Tensor numbers(const Shape& shape, int factor, int modulus, int offset, double unit) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < numel(shape); ++i)
    out.push_back(static_cast<float>((i * factor % modulus - offset) * unit));
  return Tensor::from(out, shape);
}

/// A weight whose codes are those numbers, by scales of steps of 1 / unit.
Variable codes(std::int64_t columns, int factor, bool per_row, int scale_factor, int scale_modulus,
               double unit) {
  const Shape scales = per_row ? Shape{kRows} : Shape{};
  const auto by = per_row ? Granularity::per_axis(0) : Granularity::per_tensor();
  auto grid = Grid::from_amax(IntFormat{8, false, true}, by,
                              numbers(scales, scale_factor, scale_modulus, -1, unit * 127));
  grid.scale = numbers(scales, scale_factor, scale_modulus, -1, unit);
  const Tensor q = numbers({kRows, columns}, factor, 255, 127, 1).to(DType::i8);
  return Variable(QuantizedTensor{q, grid, {}});
}

struct Layer {
  Variable x, hidden, cell;
  ops::RecurrentWeights weights;
};

Layer layer(std::int64_t batch, bool per_row) {
  return {numbers({batch, kSteps, kIn}, 37, 17, 8, 1.0 / 8),
          numbers({batch, kWidth}, 3, 5, 2, 1.0 / 4),
          numbers({batch, kWidth}, 2, 7, 3, 1.0 / 4),
          {codes(kIn, 29, per_row, 3, 7, 1.0 / 512), codes(kWidth, 53, per_row, 2, 5, 1.0 / 256),
           numbers({kRows}, 5, 11, 5, 1.0 / 16), numbers({kRows}, 7, 13, 6, 1.0 / 16)}};
}

Variable run(const Layer& l, DynamicRange range) {
  return ops::lstm(l.x, l.weights, l.hidden, l.cell, false, range);
}

/// ONNX Runtime 1.31.1, DynamicQuantizeLSTM on one thread, a batch of two.
TEST(Recurrent, IntegersMatchOnnxRuntimeBitwise) {
  const std::vector<float> expected{
      0x1.7020d4p-3f, -0x1.7c06cep-5f, -0x1.a7d214p-2f, 0x1.ca18a8p-4f, -0x1.85444cp-5f, -0x1.3a7f5cp-2f,
      0x1.cf2328p-7f, -0x1.024154p-3f, -0x1.466ca8p-3f, 0x1.3561a2p-2f, -0x1.f4c904p-3f, 0x1.62304ap-8f,
      0x1.e86bb8p-5f, -0x1.00f5bep-2f, 0x1.0b6616p-4f,  0x1.ecf406p-6f, -0x1.51bf5p-3f,  0x1.aa0e96p-3f};
  run_on_every_target([&](std::int64_t) {
    EXPECT_EQ(run(layer(2, true), DynamicRange::tensor).tensor().to_vector<float>(), expected);
  });
}

/// Outputs of one sample with one scale per weight.
TEST(Recurrent, OneSampleMatchesOnnxRuntimeBitwise) {
  const std::vector<float> expected{-0x1.cbcfep-4f,  -0x1.0328aep-4f, -0x1.4c1b02p-4f,
                                    -0x1.e724b2p-5f, 0x1.169744p-4f,  -0x1.a058f8p-4f,
                                    -0x1.429b2ap-5f, 0x1.2ca792p-4f,  -0x1.61b406p-4f};
  EXPECT_EQ(run(layer(1, false), DynamicRange::tensor).tensor().to_vector<float>(), expected);
  EXPECT_EQ(run(layer(1, false), DynamicRange::sample).tensor().to_vector<float>(), expected);
}

TEST(Recurrent, PerSampleRangesMatchEachSampleAlone) {
  Layer all = layer(3, true);
  const auto together = run(all, DynamicRange::sample).tensor();
  for (std::int64_t n = 0; n < 3; ++n) {
    Layer one = all;
    one.x = all.x.tensor().slice(n, n + 1).clone();
    one.hidden = all.hidden.tensor().slice(n, n + 1).clone();
    one.cell = all.cell.tensor().slice(n, n + 1).clone();
    EXPECT_TRUE(bitwise_equal(run(one, DynamicRange::tensor).tensor(), together.slice(n, n + 1).clone()));
  }
  EXPECT_FALSE(bitwise_equal(run(all, DynamicRange::tensor).tensor(), together));
}

/// x rounded to its codes; the gradient passes unchanged.
Variable rounded(const Variable& x) {
  const auto values = x.tensor().to_vector<float>();
  float low = 0, high = 0;
  for (const float v : values) low = std::min(low, v), high = std::max(high, v);
  const auto grid = detail::DynamicGrid::of(low, high);
  std::vector<float> off;
  for (const float v : values) off.push_back(grid.value(grid.code(v)) - v);
  return ops::add(x, Variable(Tensor::from(off, x.shape())));
}

/// An LSTM of single operators on rounded values: its gradient is what straight through means.
Variable run_operators(const Layer& l) {
  Variable h = l.hidden, c = l.cell;
  const Variable gates = ops::linear(rounded(l.x), l.weights.input.as_float(), l.weights.input_bias);
  std::vector<Variable> outputs;
  for (std::int64_t t = 0; t < kSteps; ++t) {
    const Variable now = ops::reshape(ops::slice(gates, 1, t, t + 1), {l.x.dim(0), kRows});
    const Variable sum =
        ops::add(now, ops::linear(rounded(h), l.weights.hidden.as_float(), l.weights.hidden_bias));
    const auto gate = [&](int i) { return ops::slice(sum, 1, i * kWidth, (i + 1) * kWidth); };
    c = ops::add(ops::multiply(ops::sigmoid(gate(1)), c),
                 ops::multiply(ops::sigmoid(gate(0)), ops::tanh(gate(2))));
    outputs.push_back(h = ops::multiply(ops::sigmoid(gate(3)), ops::tanh(c)));
  }
  return ops::stack(outputs, 1);
}

TEST(Recurrent, PassesGradientsStraightThrough) {
  std::vector<std::vector<Tensor>> gradients;
  for (const bool single : {false, true}) {
    Layer l = layer(2, true);
    const Variable w(dequantize(*l.weights.input.quantized()), true),
        r(dequantize(*l.weights.hidden.quantized()), true);
    l.weights.input = ops::attach_codes(w, *l.weights.input.quantized());
    l.weights.hidden = ops::attach_codes(r, *l.weights.hidden.quantized());
    std::vector<Variable> leaves{l.x, l.hidden, l.cell, l.weights.input_bias, l.weights.hidden_bias};
    for (auto& leaf : leaves) leaf.set_requires_grad(true);
    leaves.insert(leaves.end(), {w, r});
    const Variable y = single ? run_operators(l) : run(l, DynamicRange::tensor);
    y.backward(numbers(y.shape(), 5, 7, 3, 0.25));
    auto& all = gradients.emplace_back();
    for (const auto& leaf : leaves) all.push_back(leaf.grad());
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    const auto a = gradients[0][i].to_vector<float>(), b = gradients[1][i].to_vector<float>();
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t k = 0; k < a.size(); ++k)  // sums of some tens of products of up to 4, each with 6e-8
      EXPECT_NEAR(a[k], b[k], 5e-6) << "input " << i << ", element " << k;
  }
}

TEST(Recurrent, RejectsMismatchedShapes) {
  Layer l = layer(2, true);
  l.weights.hidden = l.weights.hidden.as_float();
  EXPECT_FALSE(ops::has_integer_weights(l.weights));
  EXPECT_THROW((void)run(l, DynamicRange::sample), ArgumentError);
  EXPECT_NO_THROW((void)run(l, DynamicRange::none));
  l = layer(2, true);
  l.x = Tensor::full({2, kSteps, kIn}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_THROW((void)run(l, DynamicRange::sample), NumericError);
  EXPECT_EQ(run(layer(0, true), DynamicRange::sample).shape(), (Shape{0, kSteps, kWidth}));
}

/// A range of zeros has scale 1; one so small that its step vanishes too.
TEST(Recurrent, HandlesRangesOfEmptyInput) {
  for (const float tiny : {0.0f, 1e-44f}) {
    const auto grid = detail::DynamicGrid::of(0.0f, tiny);
    EXPECT_EQ(grid.scale, 1.0f);
    EXPECT_EQ(grid.code(tiny), 0);
  }
}

TEST(Recurrent, GateFunctionsAreCloseToDouble) {
  float sigmoid = 0, tanh = 0;
  for (const float x : patterns()) {
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(scalar::sigmoid_gate(x)) && std::isnan(scalar::tanh_gate(x)));
      continue;
    }
    const double s = 1.0 / (1.0 + std::exp(-double{x})), t = std::tanh(double{x});
    sigmoid = std::max(sigmoid, static_cast<float>(std::abs(scalar::sigmoid_gate(x) - s)));
    tanh = std::max(tanh, static_cast<float>(std::abs(scalar::tanh_gate(x) - t)));
  }
  EXPECT_LE(sigmoid, 1.6e-7f);
  EXPECT_LE(tanh, 3e-7f);
}

struct Step {
  detail::RecurrentStep forward;
  detail::RecurrentStepBackward backward;
};

/// A step of numbers of every kind.
Step make_step(RecurrentCell cell, std::int64_t width) {
  constexpr std::int64_t rows = 3;
  const auto all = patterns();
  std::size_t at = 7 * static_cast<std::size_t>(width);
  const auto next = [&](const Shape& shape) {
    Tensor out = Tensor::empty(shape);
    for (std::int64_t i = 0; i < out.numel(); ++i)
      out.mutable_data<float>()[i] = all[(at += 1299709) % all.size()];
    return out;
  };
  const std::int64_t gates = detail::gate_count(cell) * width;
  const bool lstm = cell == RecurrentCell::lstm, gru = cell == RecurrentCell::gru;
  Step out{{cell, next({rows, gates}), next({rows, gates}), next({gates}), {}, {}, {}, next({rows, width})},
           {cell, {}, {}, {}, {}, next({rows, width}), next({rows, width}), {}, next({rows, gates}), {}}};
  if (gru) out.forward.state_bias = next({width});
  if (gru || lstm) out.forward.before = next({rows, width});
  if (lstm) out.forward.cell = next({rows, width});
  if (gru || lstm) out.backward.carried = next({rows, width});
  if (gru) out.backward.dof_state = next({rows, gates});
  return out;
}

std::vector<Tensor> results(const Step& step) {
  const auto& [f, b] = step;
  std::vector<Tensor> out;
  for (const auto& t : {f.gates, f.of_state, f.cell, f.state, b.carried, b.dgates, b.dof_state})
    if (t.defined()) out.push_back(t);
  return out;
}

/// Outputs of backward after forward.
template <class Forward, class Backward>
std::vector<Tensor> computed(RecurrentCell cell, std::int64_t width, Forward forward, Backward backward) {
  Step step = make_step(cell, width);
  forward(step.forward);
  step.backward.gates = step.forward.gates;
  step.backward.of_state = step.forward.of_state;
  step.backward.before = step.forward.before;
  step.backward.cell = step.forward.cell;
  backward(step.backward);
  return results(step);
}

template <class Call, class Element>
void one_by_one(Call& call, std::int64_t width, const Element& element) {
  const auto a = call.template arrays<float>();
  for (std::int64_t i = 0; i < 3 * width; ++i) element(a, i / width, i % width);
}

TEST(Recurrent, VectorsMatchScalarsBitwise) {
  for (const auto cell :
       {RecurrentCell::lstm, RecurrentCell::gru, RecurrentCell::rnn_tanh, RecurrentCell::rnn_relu})
    for (const std::int64_t width : {1, 5, 16, 37, 200}) {
      const auto expected = computed(
          cell, width,
          [&](auto& f) {
            one_by_one(f, width, [&](const auto& a, auto row, auto j) {
              scalar::recurrent_step(cell, a, row, j, detail::OneNumber<float>());
            });
          },
          [&](auto& b) {
            one_by_one(b, width, [&](const auto& a, auto row, auto j) {
              scalar::recurrent_gradient(cell, a, row, j, detail::OneNumber<float>());
            });
          });
      run_on_every_target([&](std::int64_t target) {
        const auto found = computed(
            cell, width, [](auto& f) { detail::run(Device::cpu(), &detail::Kernels::recurrent_step, f); },
            [](auto& b) { detail::run(Device::cpu(), &detail::Kernels::recurrent_step_backward, b); });
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const auto a = found[i].to_vector<float>(), b = expected[i].to_vector<float>();
          for (std::size_t k = 0; k < a.size(); ++k)
            ASSERT_TRUE(same_number(a[k], b[k]))
                << a[k] << " and " << b[k] << ", tensor " << i << " of " << width << " on " << target;
        }
      });
    }
}

}  // namespace
}  // namespace fq::recurrent_test
