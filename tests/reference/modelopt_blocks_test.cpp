#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fakequant/core/error.h"
#include "fakequant/reference/modelopt.h"

namespace fq::modelopt::modelopt_blocks_test {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr NumBits kE8m0{8, 0}, kE4m3{4, 3}, kE2m1{2, 1};

std::vector<float> values(const Tensor& x) { return x.to(DType::f32).to_vector<float>(); }

/// Deterministic values of many magnitudes, both signs.
Tensor spread(const Shape& shape) {
  std::vector<float> v(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < v.size(); ++i)
    v[i] = std::ldexp(static_cast<float>((i * 2654435761u) % 2001) / 1000 - 1, static_cast<int>(i % 13) - 6);
  return Tensor::from(v, shape);
}

template <class F>
void expect_error(F&& f, const char* part) {
  EXPECT_THAT([&] { (void)f(); }, ThrowsMessage<ArgumentError>(HasSubstr(part)));
}

TEST(StaticFp4, RoundsTiesToEvenAndGivesZerosTheirSigns) {
  const Tensor x =
      Tensor::from({0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 5.01f, -0.1f, -0.0f, kNaN, kInf}, {1, 12});
  const auto y = values(static_blockwise_fp4_fake_quant(x, Tensor::from({6.0f}, {1, 1}), {}, false));
  EXPECT_EQ(y, (std::vector<float>{0, 1, 1, 2, 2, 4, 4, 6, 0, 0, -6, 6}));
  EXPECT_TRUE(std::signbit(y[8]));
  EXPECT_FALSE(std::signbit(y[9]));
  EXPECT_EQ(values(fp4_cast_ste(x.reshape({12}))), y);
}

TEST(StaticFp4, ReturnsPositiveZerosForAZeroScale) {
  const Tensor x = Tensor::from({-1.0f, kNaN, 1.0f, 2.0f}, {2, 2});
  const auto y = values(static_blockwise_fp4_fake_quant(x, Tensor::from({0.0f, 6.0f}, {2, 1}), {}, false));
  EXPECT_EQ(y, (std::vector<float>{0, 0, 1, 2}));
  EXPECT_FALSE(std::signbit(y[0]));
}

TEST(StaticFp4, ScalesAreE4m3OfTheLargestMagnitude) {
  const auto exact = values(compute_fp4_scales({6.0, 3.0, 0.1}, {}, false));
  EXPECT_EQ(exact, (std::vector<float>{1.0f, 0.5f, 0.1f / 6.0f}));
  const auto rounded = values(compute_fp4_scales({6.0, 3.0, 0.1}));
  const float s = 448.0f * (1.0f / 1.0f);
  EXPECT_EQ(rounded[0], 448.0f * (1.0f / s));
  EXPECT_EQ(rounded[1], 224.0f * (1.0f / s));
  EXPECT_EQ(rounded[2], 7.5f * (1.0f / s));  // 448 * 0.1 / 6 = 7.47
  EXPECT_EQ(values(compute_fp4_scales({3.0}, 6.0)), values(compute_fp4_scales({3.0}, {6.0})));
  const auto four_six = values(compute_fp4_scales({6.0}, {}, true, 256));
  EXPECT_NEAR(four_six[0], 1, 0.04);
}

TEST(StaticFp4, GradientIsClippedByTheBlock) {
  const Tensor x = Tensor::from({1.0f, -2.0f, 3.0f, 0.5f, -0.5f, kNaN}, {2, 3});
  const Tensor amax = Tensor::from({2.0f, 0.5f}, {2, 1}), dy = Tensor::full({2, 3}, 1);
  const Variable clipped(x, true), passed(x, true), cast(Tensor::from({6.0f, -6.1f, kNaN}), true);
  static_blockwise_fp4_fake_quant(clipped, amax).backward(dy);
  static_blockwise_fp4_fake_quant(passed, amax, {}, true, 448, {}, true).backward(dy);
  fp4_cast_ste(cast).backward(Tensor::full({3}, 1));
  EXPECT_EQ(values(clipped.grad()), (std::vector<float>{1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(values(passed.grad()), (std::vector<float>{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(values(cast.grad()), (std::vector<float>{1, 0, 0}));
}

TEST(StaticFp4, KeepsTypeLayoutAndRunsOnMeta) {
  const Tensor x = spread({2, 4, 2, 2});
  const Tensor expected = static_blockwise_fp4_fake_quant(x, {1.0, 2.0});
  const Tensor last = static_blockwise_fp4_fake_quant(x.to(Layout::channels_last), {1.0, 2.0});
  EXPECT_EQ(last.layout(), Layout::channels_last);
  EXPECT_TRUE(bitwise_equal(last, expected));
  EXPECT_TRUE(bitwise_equal(static_blockwise_fp4_fake_quant(x, {1.0, 2.0}, {}, true, 448, DType::f16),
                            expected.to(DType::f16)));
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const Variable meta(Tensor::empty({4, 16}, dtype, Device::meta()), true);
    const std::vector<Variable> results{
        static_blockwise_fp4_fake_quant(meta, Tensor::full({4, 1}, 1)), fp4_cast_ste(meta),
        dynamic_block_quantize(meta, kE2m1, kE4m3, 16, 1.0, BlockKernel::triton),
        dynamic_block_quantize(meta, kE4m3, kE8m0, 32)};
    for (const Variable& y : results) {
      EXPECT_TRUE(y.device().is_meta());
      EXPECT_EQ(y.shape(), (Shape{4, 16}));
      EXPECT_EQ(y.tensor().dtype(), dtype);
    }
  }
  EXPECT_EQ(static_blockwise_fp4_fake_quant(Tensor::zeros({0, 4}), {1.0, 2.0}).shape(), (Shape{0, 4}));
}

TEST(StaticFp4, RejectsInvalidArguments) {
  const Tensor x = spread({2, 3});
  expect_error([&] { return static_blockwise_fp4_fake_quant(x, {1.0, 2.0, 3.0, 4.0}); }, "equal length");
  expect_error([&] { return static_blockwise_fp4_fake_quant(x, Amax()); }, "amax is missing");
  expect_error([&] { return static_blockwise_fp4_fake_quant(x, Tensor::zeros({0})); }, "equal length");
  expect_error([&] { return static_blockwise_fp4_fake_quant(x, {1.0, 2.0}, {1.0, 2.0}); }, "use one");
  expect_error([&] { return compute_fp4_scales({1.0}, {}, true, 0); }, "must be positive");
  expect_error([&] { return compute_fp4_scales(Amax()); }, "amax is missing");
  expect_error([&] { return static_blockwise_fp4_fake_quant(x.to(DType::f64), {1.0}); }, "f32, f16 or bf16");
  expect_error([&] { return static_blockwise_fp4_fake_quant(x, {1.0}, {}, true, 448, DType::i8); },
               "use f32");
  expect_error([&] { return fp4_cast_ste(x.to(DType::i8)); }, "f32, f16 or bf16");
  expect_error([&] { return fp4_cast_ste(Tensor()); }, "f32, f16 or bf16");
}

TEST(DynamicBlocks, PowerOfTwoScalesKeepGridValues) {
  const Tensor grid = Tensor::from({0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, -4.0f, 6.0f});
  for (const float scale : {0x1p-126f, 0x1p-20f, 1.0f, 0x1p100f}) {
    std::vector<float> x = values(grid);
    for (auto& v : x) v *= scale;
    const Tensor scaled = Tensor::from(x, {8});
    EXPECT_EQ(values(dynamic_block_quantize(scaled, kE2m1, kE8m0, 8)), x) << scale;
  }
}

TEST(DynamicBlocks, EveryFormatRoundsToItsOwnGrid) {
  const auto last = [](const NumBits& bits, float top, float v) {
    const Tensor x = Tensor::from({top, v, -v, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f});
    const auto y = values(dynamic_block_quantize(x, bits, kE8m0, 8));
    EXPECT_EQ(y[0], top);
    EXPECT_EQ(y[1], -y[2]);
    return y[1];
  };
  EXPECT_EQ(last(8, 127, 2.5f), 2);
  EXPECT_EQ(last({1, 2}, 3.5f, 1.25f), 1);
  EXPECT_EQ(last({0, 3}, 7, 3.5f), 4);
  EXPECT_EQ(last({3, 0}, 16, 3.0f), 4);
  EXPECT_EQ(last({3, 0}, 16, 0.125f), 0.25f);
  EXPECT_EQ(last({3, 0}, 16, 0.124f), 0);
  EXPECT_EQ(last({3, 2}, 28, 0.09375f), 0.125f);
  EXPECT_EQ(last({2, 3}, 7.5f, 2.125f), 2);
  EXPECT_EQ(last({4, 3}, 448, 1.0625f), 1);
  EXPECT_EQ(last({5, 2}, 57344, 1.125f), 1);
  EXPECT_EQ(last({2, 1}, 6, 5.0f), 4);
}

TEST(DynamicBlocks, HandlesNaNAndInfinity) {
  const Tensor x = Tensor::from({1.0f, kNaN, -2.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f});
  EXPECT_TRUE(std::isnan(values(dynamic_block_quantize(x, kE4m3, kE8m0, 8))[1]));
  EXPECT_EQ(values(dynamic_block_quantize(x, 8, kE8m0, 8))[1], 0);
  EXPECT_EQ(std::fabs(values(dynamic_block_quantize(x, kE2m1, kE8m0, 8))[1]), 3);  // 6 * 2^-1
  const Tensor zeros = Tensor::zeros({8});
  EXPECT_EQ(values(dynamic_block_quantize(zeros, kE2m1, kE4m3, 8)), values(zeros));
  const Tensor largest = Tensor::from({kInf, 1.0f});
  const float top = std::numeric_limits<float>::max();
  EXPECT_EQ(values(dynamic_block_quantize(largest, kE2m1, kE8m0, 8))[0],
            values(dynamic_block_quantize(Tensor::from({top}), kE2m1, kE8m0, 8))[0]);
}

TEST(DynamicBlocks, PadsTheTailWithZeros) {
  const Tensor x = spread({3, 21});
  std::vector<float> padded(3 * 32), v = values(x);
  for (std::size_t i = 0; i < 3; ++i)
    std::copy_n(v.begin() + static_cast<long>(21 * i), 21, padded.begin() + static_cast<long>(32 * i));
  const auto whole = values(dynamic_block_quantize(Tensor::from(padded, {3, 32}), kE2m1, kE4m3, 16, 60.0));
  const auto ragged = values(dynamic_block_quantize(x, kE2m1, kE4m3, 16, 60.0));
  for (std::size_t i = 0; i < ragged.size(); ++i) EXPECT_EQ(ragged[i], whole[i / 21 * 32 + i % 21]);
}

TEST(DynamicBlocks, AcceptsOneGlobalRangePerRow) {
  const Tensor x = spread({2, 40});
  const Tensor both = dynamic_block_quantize(x, kE2m1, kE4m3, 16, {30.0, 70.0});
  EXPECT_TRUE(bitwise_equal(both.slice(0, 1), dynamic_block_quantize(x.slice(0, 1), kE2m1, kE4m3, 16, 30.0)));
  EXPECT_TRUE(bitwise_equal(both.slice(1, 2), dynamic_block_quantize(x.slice(1, 2), kE2m1, kE4m3, 16, 70.0)));
}

TEST(DynamicBlocks, ResultIsInvariantToBlockCount) {
  const Tensor x = spread({300, 200});
  for (const BlockKernel kernel : {BlockKernel::cuda_ext, BlockKernel::triton}) {
    const Tensor whole = dynamic_block_quantize(x, kE2m1, kE4m3, 16, 60.0, kernel);
    for (std::int64_t row : {0, 7, 299})
      EXPECT_TRUE(
          bitwise_equal(whole.slice(row, row + 1),
                        dynamic_block_quantize(x.slice(row, row + 1), kE2m1, kE4m3, 16, 60.0, kernel)));
  }
}

TEST(DynamicBlocks, SixteenBitTypesAreRoundedAtTheEnd) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = spread({5, 48}).to(dtype);
    const Tensor expected = dynamic_block_quantize(x.to(DType::f32), kE2m1, kE4m3, 16, 60.0).to(dtype);
    EXPECT_TRUE(bitwise_equal(dynamic_block_quantize(x, kE2m1, kE4m3, 16, 60.0), expected));
  }
}

TEST(DynamicBlocks, PassesGradientsUnlessClippingIsEnabled) {
  const Tensor x = Tensor::from({1.0f, -2.0f, 3.0f, kNaN}), dy = Tensor::full({4}, 1);
  const Variable passed(x, true), clipped(x, true), unbounded(x, true);
  dynamic_block_quantize(passed, kE2m1, kE4m3, 16, 2.0).backward(dy);
  dynamic_block_quantize(clipped, kE2m1, kE4m3, 16, 2.0, BlockKernel::triton, false).backward(dy);
  dynamic_block_quantize(unbounded, kE2m1, kE8m0, 16, {}, BlockKernel::cuda_ext, false).backward(dy);
  EXPECT_EQ(values(passed.grad()), (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ(values(clipped.grad()), (std::vector<float>{1, 1, 0, 0}));
  EXPECT_EQ(values(unbounded.grad()), (std::vector<float>{1, 1, 1, 1}));
}

TEST(DynamicBlocks, RejectsInvalidArguments) {
  const Tensor x = spread({2, 16});
  const auto triton = BlockKernel::triton;
  expect_error([&] { return dynamic_block_quantize(x, NumBits(4, 2), kE8m0, 16); }, "num_bits is (4, 2)");
  expect_error([&] { return dynamic_block_quantize(x, 4, kE8m0, 16); }, "num_bits is 4");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, NumBits(5, 2), 16); }, "scale_bits is (5, 2)");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, kE8m0, 64); }, "use 8, 16 or 32");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, kE8m0, 0); }, "use 8, 16 or 32");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, kE8m0, 16, 1.0); }, "leave it out");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, kE4m3, 16, {1.0, 2.0, 3.0}); }, "3 elements");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, kE4m3, 16, {1.0, 2.0}, triton); }, "2 elements");
  expect_error(
      [&] {
        return dynamic_block_quantize(x.reshape({2, 4, 4}), kE2m1, kE4m3, 16, {1.0, 2.0});
      },
      "2-D input");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, kE4m3, 16, {}, triton); }, "is missing");
  expect_error([&] { return dynamic_block_quantize(x, kE4m3, kE4m3, 16, 1.0, triton); },
               "use (2, 1), (4, 3)");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, kE8m0, 16, 1.0, triton); },
               "use (2, 1), (4, 3)");
  expect_error([&] { return dynamic_block_quantize(x, kE2m1, kE4m3, 32, 1.0, triton); }, "blocks of 32");
  expect_error([&] { return dynamic_block_quantize(x.to(DType::f64), kE2m1, kE8m0, 16); }, "f32, f16");
  expect_error([&] { return dynamic_block_quantize(Tensor::scalar(1), kE2m1, kE8m0, 16); }, "no axes");
  expect_error([&] { return dynamic_block_quantize(Tensor(), kE2m1, kE8m0, 16); }, "undefined");
}

}  // namespace
}  // namespace fq::modelopt::modelopt_blocks_test
