#include "fakequant/core/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/gradient_check.h"
#include "cuda_device.h"
#include "fakequant/core/backend/capture.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/detail/attention_blocks.h"
#include "fakequant/core/ops/detail/tiled_attention.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/core/random.h"
#include "fakequant/core/tape.h"

namespace fq::cuda_attention_test {
namespace {

using test::random_values;

class CudaAttention : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Case {
  std::int64_t samples, heads, kv_heads, queries, keys, width, value_width;
  bool causal = false;
  Tensor mask = {};
  double magnitude = 1;  ///< of q, k and v
  double dropout = 0;
  [[nodiscard]] std::string text() const {
    return fmt::format("{} samples, {} / {} heads, {} x {}, width {} / {}{}{}, dropout {}", samples, heads,
                       kv_heads, queries, keys, width, value_width, causal ? ", causal" : "",
                       mask.defined() ? ", mask " + to_string(mask.shape()) : "", dropout);
  }
  /// q, k, v and dy, in f64; the same numbers in f32.
  [[nodiscard]] std::vector<Tensor> inputs() const {
    const auto values = [&](const Shape& shape, unsigned seed) {
      return random_values(shape, seed, -magnitude, magnitude).to(DType::f32).to(DType::f64);
    };
    return {values({samples, heads, queries, width}, 1), values({samples, kv_heads, keys, width}, 2),
            values({samples, kv_heads, keys, value_width}, 3),
            values({samples, heads, queries, value_width}, 4)};
  }
};

/// Attention by products, whose dropout counts the weights.
Variable by_products(const Case& c, const Variable& q, const Variable& k, const Variable& v,
                     const Variable& mask) {
  const std::int64_t rows = c.heads / c.kv_heads * c.queries;
  const Variable scores = ops::matmul(ops::reshape(q, {c.samples, c.kv_heads, rows, c.width}), k, true);
  Variable weights = ops::attention_weights(
      ops::reshape(scores, {c.samples, c.heads, c.queries, c.keys}),
      {.causal = c.causal, .scale = 1 / std::sqrt(static_cast<double>(c.width))}, mask);
  weights = ops::reshape(ops::dropout(weights, c.dropout, true), {c.samples, c.kv_heads, rows, c.keys});
  return ops::reshape(ops::matmul(weights, v), {c.samples, c.heads, c.queries, c.value_width});
}

Variable attended(const Case& c, const Variable& q, const Variable& k, const Variable& v,
                  const Variable& mask) {
  if (c.dropout == 0) return ops::scaled_dot_product_attention(q, k, v, {.causal = c.causal}, mask);
  const auto y = detail::attention_with_dropout(q, k, v, c.dropout, {.causal = c.causal}, mask);
  return y ? *y : by_products(c, q, k, v, mask);
}

/// y, dq, dk and dv, on the CPU.
std::vector<Tensor> attend(const Case& c, std::vector<Tensor> inputs, Device device, DType dtype) {
  for (Tensor& x : inputs) x = x.to(dtype).to(device);
  const BackwardScope numbers(BackwardType::fp32);
  const Variable q(inputs[0], true), k(inputs[1], true), v(inputs[2], true);
  Variable mask;
  if (c.mask.defined()) mask = Variable((c.mask.dtype() == DType::u8 ? c.mask : c.mask.to(dtype)).to(device));
  const RandomScope stream(11, (std::uint64_t{1} << 33) + 7);
  const Variable y = attended(c, q, k, v, mask);
  y.backward(inputs[3]);
  std::vector<Tensor> out{y.tensor(), q.grad(), k.grad(), v.grad()};
  for (Tensor& x : out) x = x.to(Device::cpu());
  return out;
}

/// Returns the largest difference, relative to the largest number.
double relative_difference(const Tensor& found, const Tensor& expected) {
  const auto x = found.to(DType::f64).to_vector<double>(), y = expected.to(DType::f64).to_vector<double>();
  EXPECT_EQ(found.shape(), expected.shape());
  double largest = 0, off = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    largest = std::max(largest, std::abs(y[i]));
    off = std::isnan(x[i]) ? kNaN : std::max(off, std::abs(x[i] - y[i]));
    if (std::isnan(off)) return off;
  }
  return largest == 0 ? off : off / largest;
}

/// Factors are rounded by 2^-22, scores of some units by 2^-21 in exponents, and f32 sums by 2^-24 a term.
/// Scores grow with the square of the magnitude. Measured on the simulated device: 1e-6, 3.7e-6 for 6. Tensor
/// cores round sums towards zero, which errs about twice as much.
double forward_tolerance(const Case& c) { return 2e-6 * std::max(1.0, c.magnitude * c.magnitude / 12); }
/// Gradients are sums of differences that cancel.
double gradient_tolerance(const Case& c) { return 2 * forward_tolerance(c); }

/// Compares with the path of the CPU in f64, which multiplies whole blocks.
void expect_close(const Case& c) {
  const auto inputs = c.inputs();
  const auto found = attend(c, inputs, Device::cuda(), DType::f32),
             expected = attend(c, inputs, Device::cpu(), DType::f64);
  EXPECT_LT(relative_difference(found[0], expected[0]), forward_tolerance(c)) << c.text();
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_LT(relative_difference(found[i], expected[i]), gradient_tolerance(c)) << c.text() << ": " << i;
}

TEST_F(CudaAttention, MatchesF64ForHeadSizes) {
  for (const std::int64_t width : {1, 8, 16, 40, 64, 72, 128, 136, 256})
    for (const bool causal : {false, true}) expect_close({1, 2, 2, 70, 70, width, width, causal});
  expect_close({1, 1, 1, 33, 35, 24, 100});
  expect_close({1, 1, 1, 33, 35, 100, 24});
  expect_close({1, 1, 1, 33, 35, 24, 200});
  expect_close({1, 1, 1, 33, 35, 200, 24});
}

TEST_F(CudaAttention, MatchesF64ForLengths) {
  for (const std::int64_t queries : {1, 17, 64, 65, 200})
    for (const std::int64_t keys : {1, 17, 64, 65, 200})
      for (const bool causal : {false, true}) expect_close({1, 1, 1, queries, keys, 16, 16, causal});
  for (const std::int64_t width : {80, 160})
    for (const bool causal : {false, true}) expect_close({1, 1, 1, 130, 200, width, width, causal});
}

TEST_F(CudaAttention, MatchesF64ForSharedHeads) {
  for (const std::int64_t kv : {1, 2, 3, 6})
    for (const bool causal : {false, true}) expect_close({2, 6, kv, 37, 50, 24, 24, causal});
}

/// Gradients of q, k and v from a masked gradient of y, with heads side by side. `fused`: the kernel clears
/// it.
std::vector<Tensor> masked_gradients(bool fused, std::int64_t heads, std::int64_t width) {
  const auto value = [&](unsigned seed) {
    return random_values({2, 37, heads * width}, seed).to(DType::f32).to(Device::cuda());
  };
  const Variable q(value(1), true), k(value(2), true), v(value(3), true);
  const Variable y = detail::attention_of_rows(q, k, v, heads, {.causal = true});
  const Grid grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.4), "y").to(Device::cuda());
  const Tensor mask = quantize(y.tensor(), grid).mask;
  const Variable masked = detail::record("mask", y.value(), {y}, [mask, fused](detail::BackwardCall& call) {
    call.dy.add_mask(mask);
    if (!fused) call.dy.evaluate();
    return detail::pass_gradient(call);
  });
  masked.backward(value(4));
  return {q.grad(), k.grad(), v.grad()};
}

TEST_F(CudaAttention, ClearsMaskedGradients) {
  for (const std::int64_t heads : {1, 3})
    for (const std::int64_t width : {5, 64, 70}) {
      const auto fused = masked_gradients(true, heads, width), apart = masked_gradients(false, heads, width);
      for (std::size_t i = 0; i < fused.size(); ++i)
        EXPECT_TRUE(bitwise_equal(fused[i], apart[i])) << heads << ' ' << width << ' ' << i;
    }
}

/// Larger numbers make sharper distributions. Scales of halves keep small numbers; gradients are products of
/// three of them.
TEST_F(CudaAttention, MatchesF64ForMagnitudes) {
  for (const double magnitude : {1e-9, 1e-6, 0.1, 3.0, 6.0})
    expect_close({1, 2, 1, 65, 90, 48, 48, true, {}, magnitude});
}

/// At most 8 keys share the scale of their values. Small values next to a large one are rounded by 2^-38 of
/// it.
TEST_F(CudaAttention, LargeValuesRoundTheirNeighboursOnly) {
  const Case c{1, 1, 1, 40, 40, 16, 16, true};
  auto inputs = c.inputs();
  constexpr double large = 1e8;
  inputs[2].mutable_data<double>()[39 * 16] = large;  // seen by the last query
  const auto found = attend(c, inputs, Device::cuda(), DType::f32),
             expected = attend(c, inputs, Device::cpu(), DType::f64);
  const auto part = [](const Tensor& y, std::int64_t begin, std::int64_t end) {
    return y.reshape({40, 16}).slice(begin, end);
  };
  EXPECT_LT(relative_difference(part(found[0], 0, 32), part(expected[0], 0, 32)), forward_tolerance(c));
  EXPECT_LT(relative_difference(part(found[0], 32, 39), part(expected[0], 32, 39)), large * 0x1p-38);
}

Tensor hidden_keys(const Shape& shape, unsigned seed) {
  Tensor mask = random_values(shape, seed, -1, 1);
  auto* values = mask.mutable_data<double>();
  for (std::int64_t i = 0; i < mask.numel(); ++i)
    if (values[i] > 0.5) values[i] = -std::numeric_limits<double>::infinity();
  return mask;
}

TEST_F(CudaAttention, MatchesF64ForMasks) {
  for (const Shape& shape : {Shape{90}, Shape{70, 90}, Shape{70, 1}, Shape{2, 1, 90}, Shape{2, 70, 90},
                             Shape{3, 1, 1, 90}, Shape{3, 1, 70, 90}, Shape{3, 2, 70, 90}, Shape{1, 1, 1, 1}})
    for (const bool causal : {false, true}) {
      const Tensor mask = numel(shape) == 1 ? random_values(shape, 9) : hidden_keys(shape, 9);
      expect_close({3, 2, 1, 70, 90, 24, 24, causal, mask});
    }
}

/// Dropout has the mask of ops::dropout. One weight that differs would exceed the tolerance.
TEST_F(CudaAttention, DropsTheWeightsOfTheProducts) {
  for (const auto& [queries, keys] : {std::pair{70, 90}, {65, 67}, {130, 129}, {33, 200}, {1, 6}})
    for (const bool causal : {false, true})
      for (const double p : {0.1, 0.6}) expect_close({2, 2, 1, queries, keys, 24, 40, causal, {}, 1, p});
  for (const std::int64_t width : {8, 80, 128, 256})
    expect_close({1, 2, 2, 70, 75, width, width, true, {}, 1, 0.3});
  expect_close({3, 4, 2, 50, 61, 24, 24, true, hidden_keys({3, 1, 50, 61}, 9), 1, 0.25});
  expect_close({1, 1, 1, 5, 6, 260, 8, false, {}, 1, 0.5});  // no tiles
}

TEST_F(CudaAttention, DropoutKeepsNoScoresAndUsesTheStepOfTheLaunch) {
  const Case c{1, 2, 2, 256, 256, 16, 16, true, {}, 1, 0.3};
  std::vector<Tensor> inputs;
  for (const Tensor& x : c.inputs()) inputs.push_back(x.to(DType::f32).to(Device::cuda()));
  const auto step = [&] {
    const Variable q(inputs[0], true), k(inputs[1], true), v(inputs[2], true);
    const Variable y = attended(c, q, k, v, {});
    y.backward(inputs[3]);
    return std::vector<Tensor>{y.tensor(), q.grad(), k.grad(), v.grad()};
  };
  reset_peak_memory(Device::cuda());
  const auto before = memory_stats(Device::cuda()).in_use, launches = test::launches_so_far();
  (void)step();
  EXPECT_LE(memory_stats(Device::cuda()).peak - before, 6 * inputs[0].nbytes());
  EXPECT_LE(test::launches_so_far() - launches, 4);
  detail::Capture capture(Device::cuda());
  std::vector<Tensor> captured;
  {
    const RandomScope scope(9, 0);
    capture.add([&] { captured = step(); });
  }
  Tensor previous;
  for (const std::uint64_t number : {5u, 6u}) {
    const RandomScope scope(9, number);
    const auto called = step();
    EXPECT_FALSE(previous.defined() && bitwise_equal(previous, called[0]));
    previous = called[0];
    const RandomScope again(9, number);
    capture.launch(0);
    for (std::size_t i = 0; i < called.size(); ++i) EXPECT_TRUE(bitwise_equal(captured[i], called[i])) << i;
  }
}

/// Lengths of samples hide whole tiles of keys. The first sample sees none.
TEST_F(CudaAttention, HiddenTilesAndRowsAreZero) {
  constexpr std::int64_t keys = 150;
  Tensor mask = Tensor::zeros({3, 1, 1, keys}, DType::u8);
  for (std::int64_t n = 0; n < 3; ++n)
    for (std::int64_t j = 0; j < 40 * n; ++j) mask.mutable_data<std::uint8_t>()[n * keys + j] = 1;
  const Case c{3, 2, 2, 40, keys, 16, 16, false, mask};
  expect_close(c);
  const auto found = attend(c, c.inputs(), Device::cuda(), DType::f32);
  for (const Tensor& x : found)
    for (const float value : x.slice(0, 1).to_vector<float>()) ASSERT_EQ(value, 0.0f);
}

/// A NaN or an infinity reaches every row that sees it. It reaches no row whose tile of queries sees it
/// nowhere.
TEST_F(CudaAttention, ValuesThatAreNotFiniteReachTheirRows) {
  constexpr std::int64_t rows = 150, width = 16, place = 140;
  for (const double bad : {kNaN, double(kInfinity), -double(kInfinity)})
    for (const std::size_t which : {0u, 1u, 2u}) {
      const Case c{1, 1, 1, rows, rows, width, width, true};
      auto inputs = c.inputs();
      inputs[which].mutable_data<double>()[place * width + 3] = bad;
      const auto y = attend(c, inputs, Device::cuda(), DType::f32)[0].to_vector<float>();
      const auto finite = [&](std::int64_t row, std::int64_t column) {
        return std::isfinite(y[static_cast<std::size_t>(row * width + column)]);
      };
      for (std::int64_t row = 0; row < 128; ++row)
        for (std::int64_t column = 0; column < width; ++column) ASSERT_TRUE(finite(row, column)) << row;
      for (std::int64_t row = place; row < (which == 0 ? place + 1 : rows); ++row)
        EXPECT_FALSE(finite(row, 3)) << row << ' ' << which << ' ' << bad;
    }
}

TEST_F(CudaAttention, ZerosAndEqualScoresAreExact) {
  const Case c{1, 1, 1, 3, 64, 8, 8};
  auto inputs = c.inputs();
  inputs[0] = Tensor::zeros(inputs[0].shape(), DType::f64);
  inputs[2] = Tensor::full(inputs[2].shape(), 0.75, DType::f64);
  for (const float value : attend(c, inputs, Device::cuda(), DType::f32)[0].to_vector<float>())
    EXPECT_EQ(value, 0.75f);
}

/// The simulated device runs every second launch backwards. There is an odd number of them.
TEST_F(CudaAttention, RepeatsItsBits) {
  for (const Case& c :
       {Case{2, 4, 2, 150, 170, 40, 40, true}, Case{1, 2, 2, 90, 90, 100, 100, false},
        Case{1, 1, 1, 40, 40, 256, 256, true}, Case{2, 2, 1, 70, 85, 24, 24, true, {}, 1, 0.2}}) {
    const auto before = test::launches_so_far();
    const auto first = attend(c, c.inputs(), Device::cuda(), DType::f32);
    const auto launches = test::launches_so_far() - before;
    EXPECT_LE(launches, 6) << "forward, three of backward, and copies";
    if (launches % 2 == 0) (void)Tensor::full({1}, 1.0, DType::f32, Device::cuda());
    const auto second = attend(c, c.inputs(), Device::cuda(), DType::f32);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(bitwise_equal(first[i], second[i])) << c.text() << i;
  }
}

TEST_F(CudaAttention, CaptureMatchesTheCallBitwise) {
  const Case c{2, 2, 1, 70, 70, 24, 24, true};
  std::vector<Tensor> inputs;
  for (const Tensor& x : c.inputs()) inputs.push_back(x.to(DType::f32).to(Device::cuda()));
  const auto step = [&] {
    const Variable q(inputs[0], true), k(inputs[1], true), v(inputs[2], true);
    const Variable y = ops::scaled_dot_product_attention(q, k, v, {.causal = true});
    y.backward(inputs[3]);
    return std::vector<Tensor>{y.tensor(), q.grad(), k.grad(), v.grad()};
  };
  detail::Capture capture(Device::cuda());
  std::vector<Tensor> captured;
  capture.add([&] { captured = step(); });
  capture.launch(0);
  const auto called = step();
  for (std::size_t i = 0; i < called.size(); ++i) EXPECT_TRUE(bitwise_equal(captured[i], called[i])) << i;
}

/// Heads side by side are read and written in place, without copies.
TEST_F(CudaAttention, RowsMatchTheirHeadsBitwise) {
  constexpr std::int64_t samples = 2, heads = 4, queries = 70, keys = 80, width = 24, value_width = 40;
  for (const std::int64_t kv_heads : {1, 2, 4}) {
    const bool causal = kv_heads != 2;
    const auto run = [&](bool moved) {
      const auto leaf = [&](std::int64_t rows, std::int64_t size, unsigned seed) {
        return Variable(random_values({samples, rows, size}, seed).to(DType::f32).to(Device::cuda()), true);
      };
      const Variable leaves[] = {leaf(queries, heads * width, 1), leaf(keys, kv_heads * width, 2),
                                 leaf(keys, kv_heads * value_width, 3)};
      const auto split = [&](int i, std::int64_t count) {
        const Variable& x = leaves[i];
        return ops::transpose(ops::reshape(x, {samples, x.dim(1), count, x.dim(2) / count}), {0, 2, 1, 3});
      };
      const ops::AttentionOptions options{.causal = causal};
      const auto before = test::launches_so_far();
      const Variable y =
          moved ? ops::reshape(
                      ops::transpose(ops::scaled_dot_product_attention(split(0, heads), split(1, kv_heads),
                                                                       split(2, kv_heads), options),
                                     {0, 2, 1, 3}),
                      {samples, queries, heads * value_width})
                : detail::attention_of_rows(leaves[0], leaves[1], leaves[2], heads, options);
      if (!moved) {
        EXPECT_EQ(test::launches_so_far() - before, 1);
      }
      y.backward(random_values(y.shape(), 4).to(DType::f32).to(Device::cuda()));
      std::vector<Tensor> all{y.tensor()};
      for (const auto& x : leaves) all.push_back(x.grad());
      return all;
    };
    const auto found = run(false), expected = run(true);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(bitwise_equal(found[i], expected[i])) << i;
  }
}

/// q, k and v in one tensor, and their gradients too. Heads of 20 and 24 channels do not fill whole groups,
/// and heads of 260 are cut out of the tensor.
TEST_F(CudaAttention, PackedMatchesRowsBitwise) {
  constexpr std::int64_t samples = 2, heads = 4, length = 70;
  for (const std::int64_t width : {8, 20, 24, 64, 260})
    for (const std::int64_t kv_heads : {1, 2, 4}) {
      const std::int64_t q_size = heads * width, k_size = kv_heads * width, all = q_size + 2 * k_size;
      const Tensor values = random_values({samples, length, all}, 1).to(DType::f32).to(Device::cuda());
      const ops::AttentionOptions options{.causal = kv_heads != 2};
      const auto part = [&](const Variable& x, int i) {
        const std::int64_t begin = i == 0 ? 0 : q_size + (i - 1) * k_size, end = q_size + i * k_size;
        return ops::slice(x, 2, begin, end);
      };
      const Variable packed(values, true), leaf(values, true);
      const auto before = test::launches_so_far();
      const Variable found = detail::attention_of_packed(packed, heads, kv_heads, options);
      if (width <= 256) {
        EXPECT_EQ(test::launches_so_far() - before, 1);
      }
      const Variable expected =
          detail::attention_of_rows(part(leaf, 0), part(leaf, 1), part(leaf, 2), heads, options);
      const Tensor dy = random_values(found.shape(), 4).to(DType::f32).to(Device::cuda());
      found.backward(dy);
      expected.backward(dy);
      EXPECT_TRUE(bitwise_equal(found.tensor(), expected.tensor())) << width;
      EXPECT_TRUE(bitwise_equal(packed.grad(), leaf.grad())) << width << ' ' << kv_heads;
    }
}

/// Rotates heads side by side as heads by themselves. Later channels do not change.
TEST_F(CudaAttention, RotaryOfRowsMatchesHeadsBitwise) {
  constexpr std::int64_t samples = 2, length = 9, heads = 3, width = 8, turned = heads * width,
                         all = turned + 13;
  const Tensor values = random_values({samples, length, all}, 1).to(DType::f32),
               dy = random_values({samples, length, all}, 2).to(DType::f32);
  for (const Device device : {Device::cpu(), Device::cuda()})
    for (const bool interleaved : {false, true}) {
      const ops::Rotary options{.first = 2, .interleaved = interleaved, .magnitude = 1.25};
      const Variable x(values.to(device), true), leaf(values.to(device), true);
      const Variable found = detail::rotary_of_rows(x, heads, width, options);
      const Variable split = ops::transpose(
          ops::reshape(ops::slice(leaf, 2, 0, turned), {samples, length, heads, width}), {0, 2, 1, 3});
      const Variable rows =
          ops::reshape(ops::transpose(ops::rotary(split, options), {0, 2, 1, 3}), {samples, length, turned});
      const Variable expected = ops::concat({rows, ops::slice(leaf, 2, turned, all)}, 2);
      found.backward(dy.to(device));
      expected.backward(dy.to(device));
      EXPECT_TRUE(bitwise_equal(found.tensor(), expected.tensor()));
      EXPECT_TRUE(bitwise_equal(x.grad(), leaf.grad()));
    }
}

/// Products of codes have gradients of 11 bits: factors are rounded by 2^-12, and weights by 2^-11 of scores
/// of some units.
TEST_F(CudaAttention, GradientsOfCodesAreRounded) {
  constexpr std::int64_t samples = 2, tokens = 90, heads = 2, size = 16, width = heads * size;
  const auto gradients = [&](BackwardType type) {
    const Grid grid = Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(2.0).to(Device::cuda()), "q");
    const auto leaf = [](const Shape& shape, unsigned seed) {
      return Variable(random_values(shape, seed).to(DType::f32).to(Device::cuda()), true);
    };
    const Variable x = leaf({samples, tokens, width}, 1);
    const auto head = [&](unsigned seed) {
      const Variable w = ops::quantize(ops::scale(leaf({width, width}, seed), 0.25), grid);
      const Variable y = ops::reshape(ops::linear(ops::quantize(x, grid), w), {samples, tokens, heads, size});
      return ops::transpose(y, {0, 2, 1, 3});
    };
    const Variable q = head(2), k = head(3), v = head(4);
    const BackwardScope scope(type);
    const Variable y = ops::scaled_dot_product_attention(q, k, v, {.causal = true});
    y.backward(random_values(y.shape(), 5).to(DType::f32).to(Device::cuda()));
    return x.grad().to(Device::cpu());
  };
  const auto rounded = gradients(BackwardType::bf16), exact = gradients(BackwardType::fp32);
  EXPECT_LT(relative_difference(rounded, exact), 4e-3);
  EXPECT_FALSE(bitwise_equal(rounded, exact));
}

/// No matrix of scores: forward keeps y and a number per row, and backward adds the gradients.
TEST_F(CudaAttention, KeepsNoScores) {
  const Case c{1, 2, 2, 1024, 1024, 16, 16, true};
  std::vector<Tensor> inputs;
  for (const Tensor& x : c.inputs()) inputs.push_back(x.to(DType::f32).to(Device::cuda()));
  const auto before = memory_stats(Device::cuda()).in_use;
  reset_peak_memory(Device::cuda());
  const Variable q(inputs[0], true), k(inputs[1], true), v(inputs[2], true);
  const Variable y = ops::scaled_dot_product_attention(q, k, v, {.causal = true});
  const std::int64_t bytes = inputs[0].nbytes();
  EXPECT_LE(memory_stats(Device::cuda()).in_use - before, bytes + bytes / 8);
  y.backward(inputs[3]);
  EXPECT_LE(memory_stats(Device::cuda()).peak - before, 6 * bytes);
}

/// Heads beyond the tiles, and f64, use products of whole blocks.
TEST_F(CudaAttention, OtherSizesUseBlocks) {
  expect_close({1, 1, 1, 5, 6, 260, 8});
  const Case c{1, 2, 1, 20, 20, 8, 8, true};
  const auto found = attend(c, c.inputs(), Device::cuda(), DType::f64),
             expected = attend(c, c.inputs(), Device::cpu(), DType::f64);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_LT(relative_difference(found[i], expected[i]), 1e-13);
}

}  // namespace
}  // namespace fq::cuda_attention_test
