#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "fakequant/core/numerics/detail/formulas.h"
#include "fakequant/reference/detail/block_scales.h"
#include "fakequant/reference/kernels/kernels.h"
#include "vector_patterns.h"

namespace fq::fake_quant_block_kernels_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
using Rule = detail::BlockScales::Rule;
constexpr detail::ElementGrid kE4m3{448.0f, 0x1p-6f, 0x1p-3f, kNaN}, kE2m1{6.0f, 1.0f, 0.5f, 6.0f};

using Formula = std::function<float(float x, float amax, std::int64_t block)>;
using Kernel = std::function<void(const Tensor& x, Tensor& y, Tensor* mask)>;

/// On every target, the kernel's values equal the formula with the block's largest |x|, and the mask compares
/// with bound(amax, block), on every target.
void compare(const Tensor& x, std::int64_t block, const Formula& formula, const Formula& bound,
             const Kernel& kernel) {
  const auto in = x.to(DType::f32).to_vector<float>();
  std::vector<float> rounded(in.size());
  std::vector<bool> passes(in.size());
  float amax = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto j = static_cast<std::int64_t>(i) / block;
    if (static_cast<std::int64_t>(i) % block == 0) amax = detail::largest_number(in.data() + i, block);
    rounded[i] = formula(in[i], amax, j);
    passes[i] = scalar::modelopt_mask(in[i], bound(in[i], amax, j));
  }
  const auto expected = Tensor::from(rounded, x.shape()).to(x.dtype()).to(DType::f32).to_vector<float>();
  run_on_every_target([&](std::int64_t target) {
    Tensor y = Tensor::zeros(x.shape(), x.dtype()), mask = Tensor::empty(x.shape(), DType::u1);
    kernel(x, y, &mask);
    const auto got = y.to(DType::f32).to_vector<float>();
    expect_same(in, got, static_cast<const std::uint8_t*>(mask.raw()), expected, passes,
                fmt::format("{} in blocks of {} on {}", x.describe(), block, target));
    Tensor unmasked = Tensor::zeros(x.shape(), x.dtype());
    kernel(x, unmasked, nullptr);
    ASSERT_EQ(std::memcmp(unmasked.raw(), y.raw(), static_cast<std::size_t>(y.nbytes())), 0);
  });
}

/// Blocks of every magnitude, some of zeros, with infinities and NaN among them.
Tensor blocks(std::int64_t count, std::int64_t length, DType dtype) {
  std::vector<float> x(static_cast<std::size_t>(count * length));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t block = i / static_cast<std::size_t>(length);
    const int exponent = static_cast<int>(block % 37) * 8 - 149;
    x[i] = block % 41 == 40 ? 0.0f : std::ldexp(std::sin(static_cast<float>(i) * 0.37f), exponent);
    if (i % 997 == 3) x[i] = kNaN;
    if (i % 1499 == 5) x[i] = i % 2 == 0 ? kInf : -kInf;
    if (i % 61 == 7) x[i] = -0.0f;
  }
  return Tensor::from(x, {count, length}).to(dtype);
}

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

TEST(FakeQuantBlockKernels, HandlePowerOfTwoScales) {
  for (const DType dtype : kTypes)
    for (const std::int64_t block : {8, 16, 32})
      for (const std::int64_t count : {1, 3, 700, 5000}) {
        const detail::ElementGrid grid = block == 32 ? kE4m3 : kE2m1;
        const auto formula = [&](float x, float amax, std::int64_t) {
          const auto s = detail::e8m0_scale(std::min(amax, 3.4028235e38f), grid.max);
          return scalar::block_fake_quant(x, s.scale, s.unscale, grid.max, grid.min_normal, grid.step,
                                          grid.nan);
        };
        const detail::BlockScales scales{Rule::power_of_two, grid.max};
        compare(
            blocks(count, block, dtype), block, formula, [](float, float, std::int64_t) { return 1.5f; },
            [&](const Tensor& x, Tensor& y, Tensor* mask) {
              cpu::fake_quant_blocks(x, block, grid, scales, 1.5f, y, mask);
            });
      }
}

TEST(FakeQuantBlockKernels, UseTheScaleOfEachBlock) {
  constexpr std::int64_t sharing = 7;
  std::vector<float> globals;
  for (int j = 0; j < 3000; j += sharing) globals.push_back(0.25f * static_cast<float>(j % 13 + 1));
  const detail::BlockScales scales{Rule::e4m3_of_global, 6.0f, globals.data(), sharing};
  const auto formula = [&](float x, float amax, std::int64_t j) {
    const auto s = detail::e4m3_scale(std::min(amax, 3.4028235e38f), 6.0f,
                                      globals[static_cast<std::size_t>(j / sharing)]);
    return scalar::block_fake_quant(x, s.scale, s.unscale, 6.0f, 1.0f, 0.5f, 6.0f);
  };
  for (const std::int64_t block : {8, 16})
    compare(
        blocks(3000, block, DType::f32), block, formula, [](float, float, std::int64_t) { return 1.5f; },
        [&](const Tensor& x, Tensor& y, Tensor* mask) {
          cpu::fake_quant_blocks(x, block, kE2m1, scales, 1.5f, y, mask);
        });
}

TEST(FakeQuantBlockKernels, HandleNvfp4) {
  for (const DType dtype : kTypes)
    for (const float global : {1.0f / 2688.0f, 1e-12f, 300.0f, kInf})
      compare(
          blocks(3000, 16, dtype), 16,
          [&](float x, float amax, std::int64_t) {
            return scalar::fp4_fake_quant(x, scalar::nvfp4_scale(amax, global));
          },
          [](float, float, std::int64_t) { return 1.5f; },
          [&](const Tensor& x, Tensor& y, Tensor* mask) { cpu::fake_quant_nvfp4(x, global, 1.5f, y, mask); });
}

TEST(FakeQuantBlockKernels, HandleFp4WithGivenScales) {
  const float specials[] = {0.0f, -0.0f, kInf, kNaN, 0x1p-149f, 3e38f, -0.5f, 1.0f / 3.0f};
  for (const DType dtype : kTypes)
    for (const std::int64_t block : {1, 5, 8, 16, 24, 32, 600, 4096})
      for (const std::int64_t count : {1, 9, 130}) {
        std::vector<float> scale, bound;
        for (std::int64_t j = 0; j < count; ++j) {
          scale.push_back(j % 3 == 0 ? specials[j / 3 % 8] : 0.01f * static_cast<float>(j + 1));
          bound.push_back(j % 7 == 0 ? kNaN : static_cast<float>(j % 5));
        }
        const Tensor scales = Tensor::from(scale, {count}), bounds = Tensor::from(bound, {count});
        compare(
            blocks(count, block, dtype), block,
            [&](float x, float, std::int64_t j) {
              const float s = scale[static_cast<std::size_t>(j)];
              return s == 0 ? 0.0f : scalar::fp4_fake_quant(x, scalar::fp4_divisor(s));
            },
            [&](float, float, std::int64_t j) { return bound[static_cast<std::size_t>(j)]; },
            [&](const Tensor& x, Tensor& y, Tensor* mask) {
              cpu::fake_quant_fp4(x, scales, bounds, y, mask);
            });
      }
}

/// Every bit pattern of the ratio that decides on the power of two, against integer arithmetic on its bits.
TEST(FakeQuantBlockKernels, RoundEveryRatioToAPowerOfTwo) {
  for (std::uint64_t bits = 1; bits < 0x7f800000u; bits += 509) {
    const auto word = static_cast<std::uint32_t>(bits);
    const int field = static_cast<int>(word >> 23);
    const std::uint32_t mantissa = word & 0x7fffffu;
    const bool up = mantissa != 0 && field != 0xfe && !(field == 0 && mantissa <= 0x400000u);
    const float expected = std::ldexp(1.0f, field - 127 + (up ? 1 : 0));
    ASSERT_EQ(scalar::power_of_two_unscale(std::bit_cast<float>(word), 1.0f), expected) << word;
  }
}

}  // namespace
}  // namespace
   // fq::fake_quant_block_kernels_test
