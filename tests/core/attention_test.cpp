#include "fakequant/core/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "core/gradient_check.h"
#include "core/products.h"
#include "fakequant/core/backend/cpu/elementwise/function_kernels.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/detail/attention_blocks.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/ops/shape.h"
#include "vector_patterns.h"

namespace fq::attention_test {
namespace {

using test::random_values;

Variable values(const Shape& shape, unsigned seed, bool with_gradient = false) {
  return Variable(random_values(shape, seed).to(DType::f32), with_gradient);
}

/// By f64 products, softmax and a mask of zeros and -infinity.
std::vector<double> expected_attention(const Variable& q, const Variable& k, const Variable& v, bool causal) {
  const std::int64_t samples = q.dim(0), heads = q.dim(1), rows = q.dim(2), keys = k.dim(2), width = q.dim(3),
                     out_width = v.dim(3), shared = heads / k.dim(1);
  const auto a = q.tensor().to_vector<float>(), b = k.tensor().to_vector<float>(),
             c = v.tensor().to_vector<float>();
  std::vector<double> out;
  for (std::int64_t n = 0; n < samples * heads; ++n)
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t group = n / heads * k.dim(1) + n % heads / shared;
      const std::int64_t seen = causal ? std::max<std::int64_t>(i + keys - rows + 1, 0) : keys;
      std::vector<double> y(static_cast<std::size_t>(out_width), 0.0);
      double sum = 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        double score = 0;
        for (std::int64_t d = 0; d < width; ++d)
          score += double(a[std::size_t((n * rows + i) * width + d)]) *
                   double(b[std::size_t((group * keys + j) * width + d)]);
        const double p = std::exp(score / std::sqrt(double(width)));
        sum += p;
        for (std::int64_t e = 0; e < out_width; ++e)
          y[std::size_t(e)] += p * double(c[std::size_t((group * keys + j) * out_width + e)]);
      }
      for (const double value : y) out.push_back(seen == 0 ? 0.0 : value / sum);
    }
  return out;
}

void expect_near(const Tensor& found, const std::vector<double>& expected, double tolerance) {
  const auto values = found.to_vector<float>();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(double(values[i]), expected[i], tolerance) << i;
}

/// Sums of some hundred products of up to 4, each of 6e-8, in exponents.
constexpr double kTolerance = 1e-5;

TEST(Attention, MatchesTheDefinitionForAnyHeads) {
  for (const std::int64_t kv : {1, 2, 4})
    for (const bool causal : {false, true}) {
      const auto q = values({2, 4, 7, 5}, 1), k = values({2, kv, 9, 5}, 2), v = values({2, kv, 9, 3}, 3);
      const Variable y = ops::scaled_dot_product_attention(q, k, v, {.causal = causal});
      expect_near(y.tensor(), expected_attention(q, k, v, causal), kTolerance);
    }
}

/// More scores than a block holds: heads apart, and rows of one apart.
TEST(Attention, BlocksSumToTheWhole) {
  const auto q = values({1, 2, 1100, 8}, 1, true), k = values({1, 1, 1100, 8}, 2, true),
             v = values({1, 1, 1100, 8}, 3, true);
  const Variable y = ops::scaled_dot_product_attention(q, k, v, {.causal = true});
  expect_near(y.tensor(), expected_attention(q, k, v, true), kTolerance);
  y.backward(Tensor::full(y.shape(), 1.0));
  double sum = 0;  // each row of probabilities adds up to 1
  for (const float g : v.grad().to_vector<float>()) sum += double(g);
  EXPECT_NEAR(sum, 2 * 1100 * 8, 0.1);
}

/// Expects equal bits. With other oneDNN kernels than AVX2's, it allows for another order of some hundred
/// products of up to 1.
void expect_sums(const Tensor& found, const Tensor& expected) {
  const bool avx2 = (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3)) == HWY_AVX2;
  const bool exact = found.dtype() == DType::f64 || avx2;
  if (exact) {
    EXPECT_TRUE(bitwise_equal(found, expected));
    return;
  }
  const auto values = expected.to_vector<float>();
  expect_near(found, {values.begin(), values.end()}, kTolerance);
}

/// Forward and backward; without some keys are several blocks of 128 rows of each of 16 groups.
TEST(Attention, CausalBlocksWithoutLaterKeysMatchBitwise) {
  struct Sizes {
    std::int64_t heads, queries, keys, width;
    bool mask;
  };
  for (const auto& [heads, queries, keys, width, mask] :
       {Sizes{4, 130, 130, 16, false}, Sizes{8, 140, 160, 8, true}, Sizes{4, 300, 200, 8, false},
        Sizes{4, 520, 520, 32, false}, Sizes{4, 130, 700, 16, true}}) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      if (dtype == DType::f64 && keys > 150) continue;  // loops, which take their time
      const detail::AttentionShape shape{4, heads, 4, queries, keys, width, width};
      const auto floats = [&](const Shape& sizes, unsigned seed) {
        return random_values(sizes, seed).to(dtype);
      };
      const Tensor q = floats(shape.q(), 1), k = floats(shape.k(), 2), v = floats(shape.v(), 3),
                   dy = floats(shape.y(), 4), hidden = mask ? floats({4, 1, 1, keys}, 5) : Tensor();
      const detail::AttentionRows rows{heads, queries, keys, 0, true, 0.3, {keys, 0, 0, 1}};
      const detail::AttentionBlocks some(shape, rows, Device::cpu()), all(shape, rows, Device::cpu(), true);
      SCOPED_TRACE(fmt::format("{} queries, {} keys", queries, keys));
      const Tensor y = some.forward(q, k, v, hidden);
      expect_sums(y, all.forward(q, k, v, hidden));
      detail::AttentionShape one = shape;
      one.samples = 1;
      expect_sums(y.slice(0, 1), detail::AttentionBlocks(one, rows, Device::cpu())
                                     .forward(q.slice(0, 1), k.slice(0, 1), v.slice(0, 1), hidden));
      const auto gradients = some.backward(dy, q, k, v, hidden, dtype),
                 expected = all.backward(dy, q, k, v, hidden, dtype);
      for (std::size_t i = 0; i < 3; ++i) expect_sums(gradients[i], expected[i]);
    }
  }
}

TEST(Attention, FullyMaskedRowsAreZeroWithoutGradient) {
  const auto q = values({1, 1, 2, 4}, 1, true), k = values({1, 1, 3, 4}, 2, true),
             v = values({1, 1, 3, 2}, 3, true);
  const Variable mask(Tensor::from<std::uint8_t>({1, 1, 0, 0, 0, 0}, {2, 3}));
  const Variable y = ops::scaled_dot_product_attention(q, k, v, {}, mask);
  const auto found = y.tensor().to_vector<float>();
  EXPECT_EQ(found[2], 0.0f);
  EXPECT_EQ(found[3], 0.0f);
  y.backward(Tensor::full(y.shape(), 1.0));
  const auto dq = q.grad().to_vector<float>(), dk = k.grad().to_vector<float>();
  for (std::size_t i = 4; i < 8; ++i) EXPECT_EQ(dq[i], 0.0f);
  for (std::size_t i = 8; i < 12; ++i) EXPECT_EQ(dk[i], 0.0f);
}

/// The quantized layer's parts give the same numbers.
TEST(Attention, MatchesMatmulSoftmaxMatmul) {
  const auto q = values({2, 2, 5, 4}, 1), k = values({2, 2, 6, 4}, 2), v = values({2, 2, 6, 3}, 3);
  const Variable fused = ops::scaled_dot_product_attention(q, k, v);
  const Variable p = ops::softmax(ops::scale(ops::matmul(q, k, true), 0.5));
  const auto a = fused.tensor().to_vector<float>(), b = ops::matmul(p, v).tensor().to_vector<float>();
  EXPECT_EQ(a, b);
}

TEST(Attention, RejectsMismatchedShapes) {
  const auto q = values({2, 4, 3, 6}, 1), k = values({2, 3, 5, 6}, 2), v = values({2, 2, 5, 6}, 3);
  EXPECT_THROW((void)ops::scaled_dot_product_attention(q, k, k), ArgumentError);  // 3 heads for 4
  EXPECT_THROW((void)ops::scaled_dot_product_attention(q, k, v), ArgumentError);
  EXPECT_THROW((void)ops::scaled_dot_product_attention(q, v, v, {}, values({3, 4}, 4)), ArgumentError);
  EXPECT_THROW((void)ops::scaled_dot_product_attention(q, v, v, {}, values({3, 5}, 4, true)), ArgumentError);
  EXPECT_THROW((void)ops::rotary(values({3, 5}, 1)), ArgumentError);
  EXPECT_THROW((void)ops::rotary(values({3, 4}, 1), {.first = -1}), ArgumentError);
  EXPECT_THROW((void)ops::rotary(values({3, 4}, 1), {.frequencies = {1.0}}), ArgumentError);
  EXPECT_THROW((void)ops::rotary(values({3, 4}, 1), {.magnitude = 0}), ArgumentError);
}

TEST(Rotary, ProductsDependOnTheDistanceOnly) {
  for (const bool interleaved : {false, true}) {
    const auto q = values({1, 8}, 1), k = values({1, 8}, 2);
    const auto product = [&](std::int64_t i, std::int64_t j) {
      const auto a = ops::rotary(q, {.first = i, .interleaved = interleaved}),
                 b = ops::rotary(k, {.first = j, .interleaved = interleaved});
      return ops::matmul(a, b, true).tensor().item();
    };
    EXPECT_NEAR(product(3, 1), product(12, 10), 1e-5);
    EXPECT_NEAR(product(0, 0), ops::matmul(q, k, true).tensor().item(), 1e-6);
  }
}

/// Gradients of attention and of GELU whose inputs are products of codes, and the saved bytes.
struct OfCodes {
  std::vector<std::vector<float>> gradients;
  std::int64_t saved_bytes = 0;

  explicit OfCodes(bool keeps_floats) {
    const Grid grid = Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(2.0), "q");
    const Variable x = values({2, 64, 32}, 1, true), w = values({96, 32}, 2, true), b = values({96}, 3, true);
    const Variable codes = ops::quantize(x, grid), weights = ops::quantize(w, grid);
    // a scaled value no longer has codes
    const auto read = [&](const Variable& y) { return keeps_floats ? ops::scale(y, 1.0) : y; };
    const BackwardScope scope(BackwardType::fp32);  // in bf16 only gradients of codes are rounded
    const std::int64_t before = memory_stats().in_use;
    Variable sum;
    {
      const auto heads = [&](std::int64_t first) {
        const Variable y = ops::linear(codes, ops::slice(weights, 0, first, first + 32), b_part(b, first));
        return read(ops::rotary(ops::transpose(ops::reshape(y, {2, 64, 4, 8}), {0, 2, 1, 3})));
      };
      const Variable y = ops::scaled_dot_product_attention(heads(0), heads(32), heads(64), {.causal = true});
      const Variable z = ops::gelu(read(ops::linear(codes, weights, b)));
      sum = ops::add(ops::mean(y, {0, 1, 2, 3}), ops::mean(z, {0, 1, 2}));
    }
    saved_bytes = memory_stats().in_use - before;
    sum.backward();
    for (const auto& leaf : {x, w, b}) gradients.push_back(leaf.grad().to_vector<float>());
  }
  static Variable b_part(const Variable& b, std::int64_t first) {
    return ops::slice(b, 0, first, first + 32);
  }
};

TEST(Attention, RecomputesCodeProductsBitwise) {
  const BackwardScope numbers(BackwardType::fp32);  // in bf16 codes and floats differ
  const OfCodes again(false), floats(true);
  EXPECT_EQ(again.gradients, floats.gradients);
  const std::int64_t inputs = 4 * 2 * 64 * (96 + 96);  // q, k, v and what GELU reads, as floats
  EXPECT_LT(again.saved_bytes, floats.saved_bytes - inputs / 2);
}

/// Factors are rounded by 2^-9 there, sums are of up to 12 products of up to 4; elsewhere nothing is.
TEST(Attention, CodeGradientsUseBf16ProductsIfSupported) {
  const auto gradients = [](BackwardType type, bool causal) {
    const BackwardScope scope(type);
    const Grid grid = Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(2.0), "q");
    const Variable leaves[] = {values({9, 2, 6, 8}, 1, true), values({9, 2, 12, 8}, 2, true),
                               values({9, 2, 12, 4}, 3, true)};
    const auto codes = [&](int i) { return ops::quantize(leaves[i], grid); };
    const Variable y = ops::scaled_dot_product_attention(codes(0), codes(1), codes(2), {.causal = causal});
    y.backward(values(y.shape(), 4).tensor());
    std::vector<float> all;
    for (const auto& leaf : leaves)
      for (const float x : leaf.grad().to_vector<float>()) all.push_back(x);
    return all;
  };
  const bool rounds = detail::run(Device::cpu(), &detail::Kernels::code_factor_dtype) == DType::bf16;
  for (const bool causal : {false, true}) {
    const auto found = gradients(BackwardType::bf16, causal), floats = gradients(BackwardType::fp32, causal);
    EXPECT_EQ(found == floats, !rounds);
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], floats[i], 0.1) << i;
  }
}

/// q, k and v that are products of codes without being made again: minifloats, and rows of ggml. Factors are
/// rounded by 2^-9.
TEST(Attention, CodeProductGradientsUseBf16) {
  const auto gradients = [](BackwardType type, bool ggml) {
    const BackwardScope attention_scope(type);
    const Variable x = values({2, 9, 32}, 1, true), w = values({32, 32}, 2);
    const auto head = [&] {
      const BackwardScope linear_scope(BackwardType::fp32);
      if (ggml) {
        const Grid blocks =
            Grid::from_amax(IntFormat{4}, Granularity::per_group(32), Tensor::full({32, 1}, 2.0), "w");
        return ops::engine_linear(x, ops::quantize(w, blocks), {}, RowEngine::ggml);
      }
      const Grid grid = Grid::from_amax(FloatFormat{4, 3}, {}, Tensor::scalar(2.0), "q");
      return ops::linear(ops::quantize(x, grid), ops::quantize(w, grid));
    };
    const auto heads = [&] { return ops::transpose(ops::reshape(head(), {2, 9, 4, 8}), {0, 2, 1, 3}); };
    const Variable y = ops::scaled_dot_product_attention(heads(), heads(), heads(), {.causal = true});
    y.backward(values(y.shape(), 4).tensor());
    return x.grad().to_vector<float>();
  };
  const bool rounds = detail::run(Device::cpu(), &detail::Kernels::code_factor_dtype) == DType::bf16;
  for (const bool ggml : {false, true}) {
    const auto found = gradients(BackwardType::bf16, ggml), floats = gradients(BackwardType::fp32, ggml);
    EXPECT_EQ(found == floats, !rounds) << ggml;
    double apart = 0, length = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      apart += std::pow(double(found[i]) - double(floats[i]), 2);
      length += std::pow(double(floats[i]), 2);
    }
    EXPECT_LT(std::sqrt(apart), 0.01 * std::sqrt(length)) << ggml;
  }
}

/// With heads read in place (16 samples and more), and with copied heads.
TEST(Attention, RowsMatchTheirHeadsBitwise) {
  constexpr std::int64_t heads = 3, queries = 40, keys = 48, width = 8, value_width = 16;
  const Grid grid = Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(2.0), "q");
  for (const std::int64_t samples : {2, 16})
    for (const bool causal : {false, true})
      for (const bool codes : {false, true}) {
        const auto run = [&](bool moved) {
          const Variable leaves[] = {values({samples, queries, heads * width}, 1, true),
                                     values({samples, keys, heads * width}, 2, true),
                                     values({samples, keys, heads * value_width}, 3, true)};
          const auto rows = [&](int i) { return codes ? ops::quantize(leaves[i], grid) : leaves[i]; };
          const auto head_slice = [&](int i) {
            const Variable x = rows(i);
            return ops::transpose(ops::reshape(x, {samples, x.dim(1), heads, x.dim(2) / heads}),
                                  {0, 2, 1, 3});
          };
          const ops::AttentionOptions options{.causal = causal};
          const Variable y =
              moved ? ops::reshape(ops::transpose(ops::scaled_dot_product_attention(
                                                      head_slice(0), head_slice(1), head_slice(2), options),
                                                  {0, 2, 1, 3}),
                                   {samples, queries, heads * value_width})
                    : detail::attention_of_rows(rows(0), rows(1), rows(2), heads, options);
          y.backward(values(y.shape(), 4).tensor());
          std::vector<Tensor> all{y.tensor()};
          for (const auto& leaf : leaves) all.push_back(leaf.grad());
          return all;
        };
        const auto found = run(false), expected = run(true);
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(bitwise_equal(found[i], expected[i])) << samples << causal << codes << i;
      }
}

Grid make_grid(double amax) { return Grid::from_amax(IntFormat{8}, {}, Tensor::scalar(amax), "q"); }

TEST(CodeMatmul, SumsAreExactAndScaledOnce) {
  for (const bool transposed : {false, true}) {
    const auto a = ops::quantize(values({3, 2, 5, 70}, 1), make_grid(2)),
               b = ops::quantize(values(transposed ? Shape{3, 2, 4, 70} : Shape{3, 2, 70, 4}, 2),
                                 make_grid(1.5));
    const Variable y = ops::matmul(a, b, transposed);
    ASSERT_NE(y.accumulator(), nullptr);
    const auto x = a.quantized()->codes.to_vector<std::int8_t>(),
               w = b.quantized()->codes.to_vector<std::int8_t>();
    const float scale = float(a.quantized()->grid.scale.item()) * float(b.quantized()->grid.scale.item());
    const auto found = y.tensor().to_vector<float>();
    for (std::size_t n = 0; n < 6; ++n)
      for (std::size_t i = 0; i < 5; ++i)
        for (std::size_t j = 0; j < 4; ++j) {
          std::int32_t sum = 0;
          for (std::size_t c = 0; c < 70; ++c)
            sum += x[(n * 5 + i) * 70 + c] * (transposed ? w[(n * 4 + j) * 70 + c] : w[(n * 70 + c) * 4 + j]);
          ASSERT_EQ(found[(n * 5 + i) * 4 + j], float(sum) * scale);
        }
  }
}

TEST(CodeMatmul, GradientsMatchTheDequantizedProduct) {
  for (const bool transposed : {false, true}) {
    const auto a = values({2, 3, 6}, 1, true),
               b = values(transposed ? Shape{2, 4, 6} : Shape{2, 6, 4}, 2, true);
    const auto qa = ops::quantize(a, make_grid(4)), qb = ops::quantize(b, make_grid(4));
    const BackwardScope exact(BackwardType::fp32);
    const Variable y = ops::matmul(qa, qb, transposed);
    y.backward(Tensor::full(y.shape(), 1.0));
    const Variable fa(qa.tensor().clone(), true), fb(qb.tensor().clone(), true);
    const Variable z = ops::matmul(fa, fb, transposed);
    z.backward(Tensor::full(z.shape(), 1.0));
    EXPECT_EQ(a.grad().to_vector<float>(), fa.grad().to_vector<float>());
    EXPECT_EQ(b.grad().to_vector<float>(), fb.grad().to_vector<float>());
  }
}

/// In bf16 dy alone is rounded, by 2^-9; sums of 40 products of up to 4.
TEST(CodeMatmul, Bf16GradientsAreCloseToTheDequantizedProduct) {
  for (const bool transposed : {false, true}) {
    const auto gradients = [&](BackwardType type) {
      const auto a = values({3, 2, 6, 40}, 1, true),
                 b = values(transposed ? Shape{3, 2, 4, 40} : Shape{3, 2, 40, 4}, 2, true);
      const BackwardScope scope(type);
      const Variable y =
          ops::matmul(ops::quantize(a, make_grid(4)), ops::quantize(b, make_grid(4)), transposed);
      y.backward(values(y.shape(), 3).tensor());
      auto all = a.grad().to_vector<float>();
      for (const float x : b.grad().to_vector<float>()) all.push_back(x);
      return all;
    };
    const auto found = gradients(BackwardType::bf16), expected = gradients(BackwardType::fp32);
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 0.1) << i;
  }
}

// ---- functions ----

/// f32 bit patterns, some thousand apart, with their signs.
template <class F>
void each_float(F&& f) {
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += 4093)
    f(std::bit_cast<float>(std::uint32_t(bits)));
}

TEST(FunctionFormulas, MeetTheirStatedAccuracy) {
  double worst_power = 0, worst_erf = 0;
  each_float([&](float x) {
    if (std::isnan(x)) return;
    const double erf = std::erf(double(x));
    worst_erf = std::max(worst_erf, std::abs(double(scalar::erf_value(x)) - erf));
    if (x > 0 || x < -87.3f) return;
    const double power = std::exp(double(x));
    worst_power = std::max(worst_power, std::abs(double(scalar::exp_below_zero(x)) - power) / power);
  });
  EXPECT_LT(worst_power, 1.3 * 0x1p-23);
  EXPECT_LT(worst_erf, 1.2e-7);
  EXPECT_TRUE(std::isnan(scalar::exp_below_zero(std::nanf(""))));
  EXPECT_TRUE(std::isnan(scalar::gelu_value(std::nanf(""))));
  EXPECT_EQ(scalar::exp_below_zero(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(scalar::exp_below_zero(0.0f), 1.0f);
}

TEST(FunctionFormulas, VectorsMatchScalarsBitwise) {
  std::vector<float> x;
  each_float([&](float v) { x.push_back(v); });
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> ones(x.size(), 1.0f), y(x.size());
  const auto expect = [&](float (*f)(float)) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float expected = f(x[i]);
      ASSERT_TRUE(std::isnan(expected)
                      ? std::isnan(y[i])
                      : std::bit_cast<std::uint32_t>(y[i]) == std::bit_cast<std::uint32_t>(expected))
          << x[i] << ' ' << y[i] << ' ' << expected;
    }
  };
  cpu::gelu_values(x.data(), n, y.data());
  expect([](float v) { return scalar::gelu_value(v); });
  cpu::gelu_gradients(ones.data(), x.data(), n, y.data());
  expect([](float v) { return scalar::gelu_slope(v); });
  cpu::silu_values(x.data(), n, y.data());
  expect([](float v) { return scalar::silu_value(v); });
  cpu::silu_gradients(ones.data(), x.data(), n, y.data());
  expect([](float v) { return scalar::silu_slope(v); });
}

/// Sum in 16 columns, and sum in order.
float sum_in_columns(const std::vector<float>& x) {
  float columns[16] = {}, sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) columns[i % 16] += x[i];
  for (const float column : columns) sum += column;
  return sum;
}

TEST(FunctionFormulas, SoftmaxRowsMatchScalarsBitwiseOnEveryTarget) {
  for (std::size_t n = 1; n < 70; ++n) {
    auto x = test::uniform({static_cast<std::int64_t>(n)}, static_cast<std::uint32_t>(n)).to_vector<float>();
    if (n % 3 == 0) x[n / 2] = -std::numeric_limits<float>::infinity();
    if (n % 5 == 0) x.back() = 4;
    const float largest = *std::max_element(x.begin(), x.end());
    std::vector<float> powers, shares;
    for (const float v : x) powers.push_back(scalar::exp_below_zero(v - largest));
    const float sum = sum_in_columns(powers);
    for (const float p : powers) shares.push_back(p / sum);
    run_on_every_target([&](std::int64_t target) {
      std::vector<float> y(n + 1, 7.0f);  // one element after the row must not change
      const auto size = static_cast<std::int64_t>(n);
      const auto [most, total] = cpu::powers_of_row(x.data(), size, y.data());
      EXPECT_EQ(most, largest) << n << " on " << target;
      EXPECT_EQ(total, sum) << n << " on " << target;
      EXPECT_EQ(std::vector<float>(y.begin(), y.end() - 1), powers) << n << " on " << target;
      cpu::divide_row(total, size, y.data());
      EXPECT_EQ(std::vector<float>(y.begin(), y.end() - 1), shares) << n << " on " << target;
      EXPECT_EQ(y.back(), 7.0f) << n << " on " << target;
    });
  }
}

}  // namespace
}  // namespace fq::attention_test
