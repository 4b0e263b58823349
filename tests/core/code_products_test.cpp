#include <cmath>

#include <gtest/gtest.h>

#include "core/products.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/context.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/sum_formulas.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/conv.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/tape.h"

namespace fq::code_products_test {
namespace {

QuantizedTensor quantized(const Tensor& x, Format format, Granularity granularity = {}) {
  const Shape scales = granularity.is_per_tensor() ? Shape{} : granularity.scale_shape(x.shape());
  Tensor amax = Tensor::empty({numel(scales)});
  for (std::int64_t i = 0; i < amax.numel(); ++i)
    amax.mutable_data<float>()[i] = 0.5f + 0.01f * static_cast<float>(i % 40);
  if (granularity.is_per_tensor()) amax = amax.reshape({});
  return quantize(x, Grid::from_amax(format, granularity, amax, "test"));
}

const IntFormat kInt8{8, false, false}, kUint8{8, true, false}, kNarrow{8, false, true},
    kInt4{4, false, true};

Variable leaf(const QuantizedTensor& x) {
  return detail::record("test", x, {Variable(Tensor::zeros(x.shape()), true)},
                        [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
}

/// dy as the bf16 backward rounds it: bf16(dy * s_w[c]) / s_w[c], in f64.
Tensor rounded(const Tensor& dy, const QuantizedTensor& w) {
  const AxisView view = axis_view(dy.shape(), w.codes.rank() == 2 ? dy.rank() - 1 : 1);
  const bool channels = detail::codes_are_factors(w, w.grid.granularity.single_axis(w.codes.rank()));
  const auto scales = channels ? w.grid.scale.to_vector<float>() : std::vector<float>{w.grid.unit};
  const auto values = dy.to_vector<float>();
  std::vector<double> out;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto c = static_cast<std::size_t>(static_cast<std::int64_t>(i) / view.inner % view.size);
    const float s = scales[c % scales.size()];
    out.push_back(static_cast<double>(static_cast<float>(bfloat16(values[i] * s))) / static_cast<double>(s));
  }
  return Tensor::from(out, dy.shape());
}

struct Gradients {
  Tensor y, x, w, bias;
};

template <class F>
Gradients gradients_of_codes(const QuantizedTensor& x, const QuantizedTensor& w, const Tensor& b,
                             const Tensor& dy, const F& op) {
  const Variable xq = leaf(x), wq = leaf(w), bias(b, true);
  const auto source_x = xq.node()->gradient->inputs[0], source_w = wq.node()->gradient->inputs[0];
  const Variable y = op(xq, wq, bias);
  y.backward(dy);
  return {y.tensor(), source_x->sum, source_w->sum, bias.grad()};
}

template <class F>
Gradients gradients_of_floats(const QuantizedTensor& x, const QuantizedTensor& w, const Tensor& b,
                              const Tensor& dy, const F& op) {
  const Variable xf(dequantize(x).to(DType::f64), true), wf(dequantize(w).to(DType::f64), true);
  const Variable bf(b.to(DType::f64), true);
  const Variable y = op(xf, wf, bf);
  y.backward(dy);
  return {y.tensor(), xf.grad(), wf.grad(), bf.grad()};
}

void expect_near(const Gradients& a, const Gradients& b) {
  // the bias moves by at most half a step of the grid, s_x * s_w < 1e-4
  EXPECT_LT(test::difference(a.y, b.y), 1e-4);
  EXPECT_LT(test::difference(a.x, b.x), test::kRounding);
  EXPECT_LT(test::difference(a.w, b.w), test::kRounding);
}

/// Compares codes * codes with the product of the dequantized floats in f64: values and all gradients, with
/// the one rounding of backward in bf16, by products of bf16 and of floats, and without it.
template <class F>
void expect_like_floats(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t channels,
                        const F& op) {
  const Tensor b = test::uniform({channels}, 7);
  const Tensor dy = test::uniform(op(Variable(x), Variable(w), Variable()).shape(), 9);
  const Gradients exact = gradients_of_floats(x, w, b, dy.to(DType::f64), op);
  const Gradients near = gradients_of_floats(x, w, b, rounded(dy, w), op);
  for (const auto engine : {cpu::best_exact_type(), cpu::ExactType::f32}) {
    const cpu::ForceExactType only(engine);
    const auto bf16 = gradients_of_codes(x, w, b, dy, op);
    expect_near(bf16, near);
    EXPECT_LT(test::difference(bf16.bias, exact.bias), test::kRounding);
    const BackwardScope scope(BackwardType::fp32);
    const auto fp32 = gradients_of_codes(x, w, b, dy, op);
    expect_near(fp32, exact);
    EXPECT_TRUE(bitwise_equal(fp32.bias, bf16.bias));
  }
}

TEST(CodeProducts, LinearReturnsSumsAndGradients) {
  const auto x = quantized(test::uniform({2, 3, 50}, 1), kInt8);
  for (const auto& by : {Granularity::per_tensor(), Granularity::per_axis(0), Granularity::per_axis(-2)}) {
    const auto w = quantized(test::uniform({11, 50}, 2), kNarrow, by);
    const Variable y = ops::linear(Variable(x), Variable(w));
    ASSERT_NE(y.accumulator(), nullptr);
    const auto& sums = std::get<ProductSums>(y.accumulator()->value);
    EXPECT_EQ(sums.axis, 2);
    EXPECT_FALSE(sums.bias.defined());
    expect_like_floats(x, w, 11,
                       [](const auto& a, const auto& b, const auto& c) { return ops::linear(a, b, c); });
  }
}

TEST(CodeProducts, ValueIsDefinedOnCodes) {
  const auto x = quantized(test::uniform({4, 30}, 1), kUint8);
  const auto w = quantized(test::uniform({5, 30}, 2), kInt4, Granularity::per_axis(0));
  const Tensor b = test::uniform({5}, 3);
  const auto y = ops::linear(Variable(x), Variable(w), b).tensor().to_vector<float>();
  const auto qx = x.codes.to_vector<std::uint8_t>();
  const auto qw = w.codes.to_vector<std::int8_t>();
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t c = 0; c < 5; ++c) {
      const float scale = x.grid.scale.data<float>()[0] * w.grid.scale.data<float>()[c];
      auto sum = static_cast<std::int64_t>(std::nearbyint(b.data<float>()[c] / scale));
      for (std::size_t k = 0; k < 30; ++k) sum += static_cast<std::int64_t>(qx[i * 30 + k]) * qw[c * 30 + k];
      EXPECT_EQ(y[i * 5 + c], static_cast<float>(sum) * scale);
    }
}

TEST(CodeProducts, ConvolutionsReturnSumsAndGradients) {
  const auto x = quantized(test::uniform({2, 6, 7, 5}, 1).to(Layout::channels_last), kInt8);
  const auto rows = quantized(test::uniform({2, 6, 7, 5}, 1), kInt8);
  const ops::ConvOptions options{{2, 1}, {1}, {}, 2};
  const auto op = [&](const auto& a, const auto& b, const auto& c) { return ops::conv2d(a, b, c, options); };
  for (const auto& by : {Granularity::per_tensor(), Granularity::per_axis(0)}) {
    const auto w = quantized(test::uniform({8, 3, 3, 3}, 2), kNarrow, by);
    const Variable y = ops::conv2d(Variable(x), Variable(w), {}, options);
    ASSERT_NE(y.accumulator(), nullptr);
    EXPECT_EQ(y.layout(), Layout::channels_last);
    EXPECT_TRUE(bitwise_equal(y.tensor(), ops::conv2d(Variable(rows), Variable(w), {}, options).tensor()));
    expect_like_floats(x, w, 8, op);
  }
  const auto line = quantized(test::uniform({2, 6, 9}, 3), kUint8);
  const auto taps = quantized(test::uniform({4, 6, 3}, 4), kNarrow, Granularity::per_axis(0));
  EXPECT_NE(ops::conv1d(Variable(line), Variable(taps)).accumulator(), nullptr);
  expect_like_floats(line, taps, 4,
                     [](const auto& a, const auto& b, const auto& c) { return ops::conv1d(a, b, c); });
}

TEST(CodeProducts, TransposedConvolutionsUseScalesAlongAxis1) {
  const auto x = quantized(test::uniform({2, 6, 4, 5}, 1).to(Layout::channels_last), kInt8);
  const auto w = quantized(test::uniform({6, 5, 3, 3}, 2), kNarrow, Granularity::per_axis(1));
  const auto op = [](const auto& a, const auto& b, const auto& c) {
    return ops::conv_transpose2d(a, b, c, {{2}, {1}, {}, 2}, {1, 0});
  };
  EXPECT_NE(op(Variable(x), Variable(w), Variable()).accumulator(), nullptr);
  expect_like_floats(x, w, 10, op);
}

/// Biases whose codes are up to 2^31 less the largest sum, of either sign.
template <class F>
void expect_bias_in_int32(const QuantizedTensor& x, const QuantizedTensor& w, std::int64_t channels,
                          std::int64_t terms, const F& op) {
  const Variable plain = op(Variable(x), Variable(w), Variable());
  const auto& sums = std::get<ProductSums>(plain.accumulator()->value);
  const double room = detail::bias_room(detail::largest_sum(x, w, terms, "test"));
  const auto scales = sums.scale.to_vector<float>();
  std::vector<float> bias;
  for (std::int64_t c = 0; c < channels; ++c) {
    const auto of = static_cast<std::size_t>(c) % scales.size();
    const double share = (c % 2 == 0 ? 1.0 : -1.0) / static_cast<double>(1 + c % 3);
    bias.push_back(static_cast<float>(share * 0.9999 * room * static_cast<double>(scales[of])));
  }
  const Variable y = op(Variable(x), Variable(w), Variable(Tensor::from(bias, {channels})));
  const Grid grid = Grid::from_amax(kInt8, {}, Tensor::scalar(1.3 * std::abs(bias[0])), "y");
  const auto codes = requantize(*y.accumulator(), grid).codes.to(Layout::row_major).to_vector<std::int8_t>();
  const auto values = y.tensor().to(Layout::row_major).to_vector<float>();
  const auto exact = sums.sums.to(Layout::row_major).to_vector<std::int32_t>();
  const AxisView view = axis_view(y.shape(), sums.axis);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto c = static_cast<std::size_t>(static_cast<std::int64_t>(i) / view.inner % view.size);
    const float scale = scales[c % scales.size()];
    const auto sum = exact[i] + static_cast<std::int64_t>(std::nearbyint(bias[c] / scale));
    ASSERT_LT(std::abs(sum), std::int64_t{1} << 31);
    ASSERT_EQ(values[i], static_cast<float>(sum) * scale) << i;
    const float position = static_cast<float>(sum) * (scale / grid.scale.data<float>()[0]);
    ASSERT_EQ(codes[i], std::clamp(std::nearbyint(position), -128.0f, 127.0f)) << i;
  }
}

TEST(CodeProducts, BiasCodesUseTheInt32RangeLeftByTheSums) {
  const auto linear = [](const auto& a, const auto& b, const auto& c) { return ops::linear(a, b, c); };
  const auto conv = [](const auto& a, const auto& b, const auto& c) { return ops::conv2d(a, b, c); };
  const auto grouped = [](const auto& a, const auto& b, const auto& c) {
    return ops::conv2d(a, b, c, {{}, {}, {}, 2});
  };
  const auto conv1 = [](const auto& a, const auto& b, const auto& c) { return ops::conv1d(a, b, c); };
  const auto conv3 = [](const auto& a, const auto& b, const auto& c) { return ops::conv3d(a, b, c); };
  const auto transposed = [](const auto& a, const auto& b, const auto& c) {
    return ops::conv_transpose2d(a, b, c, {{2}, {1}, {}, 2});
  };
  for (const auto engine : {cpu::ExactType::s8, cpu::ExactType::bf16, cpu::ExactType::f32}) {
    if (!cpu::exact_type_works(engine)) continue;
    const cpu::ForceExactType only(engine);
    for (const IntFormat& format : {kInt8, kUint8})
      for (const auto& by : {Granularity::per_tensor(), Granularity::per_axis(0)}) {
        const auto x = [&](Shape shape) { return quantized(test::uniform(std::move(shape), 1), format); };
        const auto w = [&](Shape shape) {
          return quantized(test::uniform(std::move(shape), 2), kNarrow, by);
        };
        expect_bias_in_int32(x({3, 5, 1041}), w({11, 1041}), 11, 1041, linear);
        expect_bias_in_int32(x({2, 6, 7, 5}), w({8, 6, 3, 3}), 8, 54, conv);
        expect_bias_in_int32(x({2, 6, 7, 5}), w({8, 3, 3, 3}), 8, 27, grouped);
        expect_bias_in_int32(x({2, 6, 9}), w({4, 6, 3}), 4, 18, conv1);
        expect_bias_in_int32(x({1, 4, 4, 3, 5}), w({3, 4, 3, 2, 3}), 3, 72, conv3);
      }
    for (const auto& by : {Granularity::per_tensor(), Granularity::per_axis(1)})
      expect_bias_in_int32(quantized(test::uniform({2, 6, 4, 5}, 1), kInt8),
                           quantized(test::uniform({6, 5, 3, 3}, 2), kNarrow, by), 10, 27, transposed);
  }
}

TEST(CodeProducts, VolumeConvolutionsReturnSumsAndGradients) {
  const auto x = quantized(test::uniform({2, 6, 4, 3, 5}, 1), kInt8);
  const auto op = [](const auto& a, const auto& b, const auto& c) {
    return ops::conv3d(a, b, c, {{2, 1, 1}, {1, 1, 0}, {1, 2, 1}, 2});
  };
  for (const auto& by : {Granularity::per_tensor(), Granularity::per_axis(0)}) {
    const auto w = quantized(test::uniform({8, 3, 3, 2, 3}, 2), kNarrow, by);
    const Variable y = op(Variable(x), Variable(w), Variable());
    ASSERT_NE(y.accumulator(), nullptr);
    EXPECT_EQ(std::get<ProductSums>(y.accumulator()->value).axis, 1);
    expect_like_floats(x, w, 8, op);
  }
  const auto w = quantized(test::uniform({6, 5, 3, 2, 2}, 2), kNarrow, Granularity::per_axis(1));
  const auto transposed = [](const auto& a, const auto& b, const auto& c) {
    return ops::conv_transpose3d(a, b, c, {{2, 1, 2}, {1, 0, 1}, {}, 2}, {1, 0, 0});
  };
  EXPECT_NE(transposed(Variable(x), Variable(w), Variable()).accumulator(), nullptr);
  expect_like_floats(x, w, 10, transposed);
}

/// Sums equal those of plain loops over the largest codes of each sign, however the engine splits them.
TEST(CodeProducts, VolumeConvolutionsAreExactAtTheExtremes) {
  constexpr std::int64_t channels = 173, taps = 3;  // 4671 products a sum
  Tensor codes = Tensor::full({1, channels, 4, 3, 3}, 255, DType::u8),
         weight = Tensor::full({2, channels, taps, 3, 3}, -127, DType::i8);
  for (std::int64_t i = 0; i < codes.numel(); i += 7) codes.mutable_data<std::uint8_t>()[i] = 254;
  for (std::int64_t i = 0; i < weight.numel(); i += 5) weight.mutable_data<std::int8_t>()[i] = 126;
  const QuantizedTensor x{codes, Grid::from_amax(kUint8, {}, Tensor::scalar(1.0), "x"), {}},
      w{weight, Grid::from_amax(kNarrow, {}, Tensor::scalar(1.0), "w"), {}};
  const Variable y = ops::conv3d(Variable(x), Variable(w), {}, {{}, {1, 0, 0}, {}, 1});
  const auto sums = std::get<ProductSums>(y.accumulator()->value).sums.to_vector<std::int32_t>();
  ASSERT_EQ(y.shape(), (Shape{1, 2, 4, 1, 1}));
  const auto qx = codes.to_vector<std::uint8_t>();
  const auto qw = weight.to_vector<std::int8_t>();
  for (std::int64_t o = 0; o < 2; ++o)
    for (std::int64_t d = 0; d < 4; ++d) {
      std::int64_t sum = 0;
      for (std::int64_t c = 0; c < channels; ++c)
        for (std::int64_t k = 0; k < taps; ++k) {
          if (d + k - 1 < 0 || d + k - 1 >= 4) continue;
          for (std::int64_t i = 0; i < 9; ++i)
            sum += std::int64_t{qx[static_cast<std::size_t>((c * 4 + d + k - 1) * 9 + i)]} *
                   qw[static_cast<std::size_t>(((o * channels + c) * taps + k) * 9 + i)];
        }
      EXPECT_EQ(sums[static_cast<std::size_t>(o * 4 + d)], sum) << o << ", " << d;
    }
}

TEST(CodeProducts, E4m3ScalesTheSumAndAddsTheBias) {
  const auto x = quantized(test::uniform({3, 40}, 1), FloatFormat{4, 3});
  const auto w = quantized(test::uniform({5, 40}, 2), FloatFormat{4, 3}, Granularity::per_axis(0));
  const Variable y = ops::linear(Variable(x), Variable(w));
  EXPECT_TRUE(std::holds_alternative<Tensor>(y.value()));
  expect_like_floats(x, w, 5,
                     [](const auto& a, const auto& b, const auto& c) { return ops::linear(a, b, c); });
  const auto image = quantized(test::uniform({2, 3, 5, 5}, 1), FloatFormat{4, 3});
  const auto kernel = quantized(test::uniform({4, 3, 3, 3}, 2), FloatFormat{4, 3});
  expect_like_floats(image, kernel, 4,
                     [](const auto& a, const auto& b, const auto& c) { return ops::conv2d(a, b, c); });
}

TEST(CodeProducts, OtherGridsMultiplyDequantizedFloats) {
  const auto x = quantized(test::uniform({3, 8}, 1), kInt8);
  const auto w = quantized(test::uniform({5, 8}, 2), kInt8);
  const auto floats = [](const Variable& a, const Variable& b) {
    return std::holds_alternative<Tensor>(ops::linear(a, b).value());
  };
  EXPECT_TRUE(floats(Variable(x), Variable(dequantize(w))));
  EXPECT_TRUE(floats(Variable(dequantize(x)), Variable(w)));
  EXPECT_TRUE(
      floats(Variable(x), Variable(quantized(test::uniform({5, 8}, 2), kInt8, Granularity::per_axis(1)))));
  EXPECT_TRUE(
      floats(Variable(quantized(test::uniform({3, 8}, 1), IntFormat{12, false, false})), Variable(w)));
}

Tensor bf16_values(const Tensor& x) {
  std::vector<float> out;
  for (const float v : x.to_vector<float>()) out.emplace_back(static_cast<float>(bfloat16(v)));
  return Tensor::from(out, x.shape());
}

/// Only weights are quantized, in blocks with arbitrary float scales. The forward product is in floats.
/// Backward multiplies dY and the factors, rounded to bf16, or unrounded with fp32.
template <class F>
void expect_rounded_backward(const Tensor& x, const QuantizedTensor& w, const F& op) {
  const auto gradients = [&](const Tensor& input, const Tensor& by) {
    const Variable a(input, true), b(by, true);
    const Variable y = op(a, b);
    y.backward(bf16_values(test::uniform(y.shape(), 9)));
    return std::pair(a.grad(), b.grad());
  };
  const auto run_on_codes = [&] {
    const Variable a(x, true), b = leaf(w);
    const auto source = b.node()->gradient->inputs[0];
    const Variable y = op(a, b);
    EXPECT_TRUE(bitwise_equal(y.tensor(), op(Variable(x), Variable(dequantize(w))).tensor()));
    y.backward(bf16_values(test::uniform(y.shape(), 9)));
    return std::pair(a.grad(), source->sum);
  };
  const auto exact = gradients(x, dequantize(w)),
             rounded = gradients(bf16_values(x), bf16_values(dequantize(w)));
  const auto bf16 = run_on_codes();
  if (detail::code_factor_dtype(Device::cpu()) == DType::bf16) {
    EXPECT_LT(test::difference(bf16.first, rounded.first), test::kRounding);
    EXPECT_LT(test::difference(bf16.second, rounded.second), test::kRounding);
  } else {
    EXPECT_TRUE(bitwise_equal(bf16.first, exact.first));
  }
  const BackwardScope scope(BackwardType::fp32);
  const auto fp32 = run_on_codes();
  EXPECT_TRUE(bitwise_equal(fp32.first, exact.first));
  EXPECT_TRUE(bitwise_equal(fp32.second, exact.second));
}

TEST(CodeProducts, DequantizedWeightProductsUseBf16InBackward) {
  const auto blocks = quantized(test::uniform({11, 96}, 2), kInt4, Granularity::per_group(32));
  expect_rounded_backward(test::uniform({6, 96}, 1), blocks,
                          [](const auto& a, const auto& b) { return ops::linear(a, b); });
  const auto taps = quantized(test::uniform({8, 6, 3, 3}, 2), kInt4, Granularity::per_group(2));
  expect_rounded_backward(test::uniform({2, 6, 7, 5}, 1), taps,
                          [](const auto& a, const auto& b) { return ops::conv2d(a, b); });
}

QuantizedTensor make_blocks(const Tensor& x, Format format, NumBits scale_bits, std::int64_t length) {
  const auto by = Granularity::per_group(length);
  const Shape blocks = by.scale_shape(x.shape());
  std::vector<float> amax(static_cast<std::size_t>(numel(blocks)));
  for (std::size_t i = 0; i < amax.size(); ++i) amax[i] = 0.4f + 0.013f * static_cast<float>(i % 40);
  const auto grid =
      Grid::block_scaled(format, by, Tensor::from(amax, {numel(blocks)}), scale_bits, 0.93f, "test");
  return quantize(x, grid);
}

TEST(CodeProducts, BlocksAreFactorsAndScales) {
  const auto linear = [](const auto& a, const auto& b, const auto& c) { return ops::linear(a, b, c); };
  const Tensor x = test::uniform({6, 50}, 1), w = test::uniform({11, 50}, 2);
  const FloatFormat e2m1{2, 1}, e4m3{4, 3};
  const auto nvfp4 = make_blocks(w, e2m1, {4, 3}, 16);
  const auto expect = [&](const QuantizedTensor& a, const QuantizedTensor& b) {
    EXPECT_EQ(detail::code_kind(Variable(a), Variable(b), 0), detail::CodeKind::factors);
    expect_like_floats(a, b, 11, linear);
  };
  expect(make_blocks(x, e2m1, {4, 3}, 16), nvfp4);
  expect(make_blocks(x, e4m3, {8, 0}, 32), make_blocks(w, e4m3, {8, 0}, 32));
  expect(make_blocks(x, kInt8, {8, 0}, 32), make_blocks(w, kInt8, {8, 0}, 32));
  expect(quantized(x, e4m3), nvfp4);
  expect(quantized(x, kUint8), quantized(w, e4m3, Granularity::per_axis(0)));
  EXPECT_EQ(detail::code_kind(Variable(make_blocks(x, kInt8, {4, 3}, 16)), Variable(nvfp4), 0),
            detail::CodeKind::floats);
  const auto taps = make_blocks(test::uniform({4, 3, 3, 3}, 2), e2m1, {4, 3}, 2);
  expect_like_floats(quantized(test::uniform({2, 3, 5, 5}, 1), e4m3), taps, 4,
                     [](const auto& a, const auto& b, const auto& c) { return ops::conv2d(a, b, c); });
}

TEST(CodeProducts, RejectsSumsThatCouldOverflowInt32) {
  const auto product = [](std::int64_t k) {
    const auto x = quantized(Tensor::full({1, k}, 1.0), kUint8),
               w = quantized(Tensor::full({1, k}, 1.0), kNarrow);
    return ops::linear(Variable(x), Variable(w));
  };
  EXPECT_EQ(std::get<ProductSums>(product(66311).accumulator()->value).sums.to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{66311 * 255 * 127}));
  try {
    (void)product(66312);
    FAIL();
  } catch (const ArgumentError& error) {
    EXPECT_NE(std::string(error.what()).find("66311"), std::string::npos) << error.what();
  }
}

TEST(CodeProducts, InfersShapesOnMeta) {
  const auto meta = [](Shape shape, Format format) {
    return Variable(QuantizedTensor{Tensor::empty(shape, format.code_dtype(), Device::meta()),
                                    Grid::from_amax(format, {}, Tensor::scalar(1.0)),
                                    {}});
  };
  const Variable b(Tensor::empty({4}, DType::f32, Device::meta()));
  const Variable y = ops::conv2d(meta({2, 3, 8, 8}, kInt8), meta({4, 3, 3, 3}, kNarrow), b);
  ASSERT_NE(y.accumulator(), nullptr);
  EXPECT_EQ(y.shape(), (Shape{2, 4, 6, 6}));
  EXPECT_EQ(y.tensor().shape(), y.shape());
  EXPECT_EQ(ops::linear(meta({2, 3}, kInt8), meta({4, 3}, kNarrow), b).tensor().shape(), (Shape{2, 4}));
  EXPECT_EQ(ops::linear(meta({2, 3}, FloatFormat{4, 3}), meta({4, 3}, FloatFormat{4, 3}), b).shape(),
            (Shape{2, 4}));
}

TEST(CodeProducts, EmptyBatch) {
  const auto x = quantized(Tensor::zeros({0, 3, 5, 5}), kInt8),
             w = quantized(test::uniform({4, 3, 3, 3}, 1), kNarrow);
  EXPECT_EQ(ops::conv2d(Variable(x), Variable(w)).tensor().shape(), (Shape{0, 4, 3, 3}));
  const auto rows = quantized(Tensor::zeros({0, 3}), kInt8),
             columns = quantized(test::uniform({4, 3}, 1), kNarrow);
  EXPECT_EQ(ops::linear(Variable(rows), Variable(columns)).tensor().shape(), (Shape{0, 4}));
}

/// Activations of sums equal those of the sums' floats, bit for bit, forward and backward.
TEST(CodeProducts, ActivationsOfSumsMatchFloatsBitwise) {
  const std::pair<const char*, Variable (*)(const Variable&)> activations[] = {
      {"gelu", [](const Variable& v) { return ops::gelu(v); }},
      {"silu", [](const Variable& v) { return ops::silu(v); }},
      {"ggml", [](const Variable& v) { return ops::ggml_gelu(v, false); }},
      {"ggml by tanh", [](const Variable& v) { return ops::ggml_gelu(v, true); }}};
  for (const auto& [m, n, k] : {std::array{1, 3, 5}, {7, 129, 33}, {67, 131, 40}})
    for (const auto& [name, activation] : activations) {
      const auto x = quantized(test::uniform({m, k}, 1), kInt8),
                 w = quantized(test::uniform({n, k}, 2), kNarrow, Granularity::per_axis(0));
      const Tensor b = test::uniform({n}, 3), dy = test::uniform({m, n}, 4);
      const auto run = [&, f = activation](bool of_floats) {
        return gradients_of_codes(x, w, b, dy, [&](const Variable& a, const Variable& c, const Variable& d) {
          const Variable y = ops::linear(a, c, d);
          EXPECT_NE(y.accumulator(), nullptr);
          return f(of_floats ? y.as_float() : y);
        });
      };
      const Gradients sums = run(false), floats = run(true);
      EXPECT_TRUE(bitwise_equal(sums.y, floats.y)) << name << ' ' << m;
      EXPECT_TRUE(bitwise_equal(sums.x, floats.x)) << name << ' ' << m;
      EXPECT_TRUE(bitwise_equal(sums.w, floats.w)) << name << ' ' << m;
      EXPECT_TRUE(bitwise_equal(sums.bias, floats.bias)) << name << ' ' << m;
    }
}

}  // namespace
}  // namespace fq::code_products_test
