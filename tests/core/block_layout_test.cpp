/// Block quantization of channels_last tensors without a copy gives the result of the row-major
/// tensor.

#include <gtest/gtest.h>

#include "core/products.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/detail/quantizer_checks.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/quantized.h"
#include "vector_patterns.h"

namespace fq::block_layout_test {
namespace {

struct Blocks {
  Shape shape;
  std::map<int, std::int64_t> lengths;
};

/// As convolutions have them: along the last axis, of whole and partial blocks, of few and of many channels.
std::vector<Blocks> all_blocks() {
  return {{{2, 16, 6, 32}, {{-1, 16}}}, {{2, 64, 5, 8}, {{-1, 16}}},       {{3, 3, 7, 20}, {{-1, 16}}},
          {{2, 48, 4, 32}, {{-1, 32}}}, {{1, 32, 9, 33}, {{-1, 32}}},      {{4, 40, 3, 5}, {{1, 16}}},
          {{2, 32, 4, 4}, {{1, 32}}},   {{2, 10, 8, 8}, {{2, 4}, {3, 4}}}, {{5, 1, 1, 64}, {{-1, 16}}}};
}

Grid make_grid(const Tensor& x, const Format& format, const Granularity& by, bool listed) {
  Tensor ranges = Tensor::empty(by.scale_shape(x.shape()), DType::f32, x.device(), x.layout());
  cpu::block_amax(x, by, ranges);
  if (listed) ranges = ranges.to(Layout::row_major).reshape({-1});
  const bool small = !format.is_integer();
  return small ? Grid::block_scaled(format, by, ranges, format.bits() == 4 ? NumBits(4, 3) : NumBits(8, 0),
                                    2.0f)
               : Grid::from_amax(format, by, ranges);
}

class BlockLayout : public testing::TestWithParam<Format> {};

/// Blocks of whole vectors with a shorter last block per row: each column is quantized on its own.
TEST_P(BlockLayout, PartialRowBlocksAreColumnBlocks) {
  for (const std::int64_t rows : {1, 3, 40})
    for (const auto& [columns, length] :
         {std::pair<std::int64_t, std::int64_t>{80, 32}, {784, 128}, {48, 64}}) {
      const Tensor x = test::uniform({rows, columns}, 5);
      const auto by = Granularity::blocks({{-1, length}});
      const auto all = quantize(x, make_grid(x, GetParam(), by, true));
      for (std::int64_t c = 0; c < columns; c += length) {
        const std::int64_t end = std::min(columns, c + length);
        const auto cut = [&](const Tensor& t) { return moved(t, CutMove{1, c, end}); };
        const Tensor part = cut(x);
        run_on_every_target([&](std::int64_t) {
          const auto own = quantize(part, make_grid(part, GetParam(), by, true));
          EXPECT_TRUE(bitwise_equal(cut(dequantize(all)), dequantize(own))) << x.shape()[1] << ' ' << c;
          EXPECT_TRUE(bitwise_equal(cut(all.mask), own.mask)) << x.shape()[1] << ' ' << c;
        });
      }
    }
}

TEST_P(BlockLayout, ResultsMatchTheRowMajorTensor) {
  for (const auto& [shape, lengths] : all_blocks()) {
    SCOPED_TRACE(to_string(shape));
    const Tensor x = test::uniform(shape, 3), last = x.to(Layout::channels_last);
    const auto by = Granularity::blocks(lengths);
    const auto expected = quantize(x, make_grid(x, GetParam(), by, true));
    for (const bool listed : {true, false})
      run_on_every_target([&](std::int64_t) {
        const auto out = quantize(last, make_grid(last, GetParam(), by, listed));
        EXPECT_EQ(out.layout(), Layout::channels_last);
        EXPECT_TRUE(bitwise_equal(code_values(out), code_values(expected)));
        EXPECT_TRUE(bitwise_equal(dequantize(out), dequantize(expected)));
        EXPECT_TRUE(bitwise_equal(out.mask, expected.mask));
        if (out.grid.scale_bits == 0) return;
        for (const DType type : {DType::f32, DType::bf16})
          EXPECT_TRUE(
              bitwise_equal(detail::code_factor(out, -1, type), detail::code_factor(expected, -1, type)));
      });
  }
}

/// s * f is the number that was dequantized, and f has the eight bits of a bfloat16.
TEST_P(BlockLayout, FactorsTimesTheUnitEqualTheValues) {
  if (GetParam().is_integer()) GTEST_SKIP() << "their scales are any floats";
  const Tensor x = test::uniform({3, 3, 7, 20}, 5);
  const auto out = quantize(x, make_grid(x, GetParam(), Granularity::per_group(16), true));
  const auto factors = detail::code_factor(out, -1, DType::f32).to_vector<float>();
  const auto values = dequantize(out).to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(factors[i], static_cast<float>(bfloat16(factors[i])));
    ASSERT_NEAR(factors[i] * out.grid.unit, values[i], std::abs(values[i]) * 0x1p-22f);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockLayout,
                         testing::Values(Format(IntFormat{4}), Format(IntFormat{8}),
                                         Format(FloatFormat{4, 3}), Format(FloatFormat{3, 2}),
                                         Format(FloatFormat{2, 1})));

TEST(BlockRanges, AreTheLargestMagnitudes) {
  for (const auto& [shape, lengths] : all_blocks()) {
    SCOPED_TRACE(to_string(shape));
    const auto by = Granularity::blocks(lengths);
    const Tensor x = test::uniform(shape, 11);
    std::vector<float> expected(static_cast<std::size_t>(numel(by.scale_shape(shape))));
    const auto map = detail::BlockMap::of(shape, by.block_shape(shape));
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      float& most = expected[static_cast<std::size_t>(map.block_index(i))];
      most = std::max(most, std::abs(x.data<float>()[i]));
    }
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      run_on_every_target([&](std::int64_t) {
        Tensor out = Tensor::empty(by.scale_shape(x.shape()), DType::f32, Device::cpu(), layout);
        cpu::block_amax(x.to(layout), by, out);
        EXPECT_EQ(out.to_vector<float>(), expected);
      });
  }
}

TEST(BlockRanges, AreInvariantToThreadCount) {
  const Tensor x = test::uniform({8, 32, 48, 80}, 13);
  for (const auto& by :
       {Granularity::per_group(16), Granularity::per_group(16, 1), Granularity::blocks_2d(7, 16),
        Granularity::per_axis(0), Granularity::per_tensor()}) {
    Tensor row = Tensor::empty(by.scale_shape(x.shape())),
           last = Tensor::empty(by.scale_shape(x.shape()), DType::f32, Device::cpu(),
                                by.is_per_tensor() ? Layout::row_major : Layout::channels_last);
    cpu::block_amax(x, by, row);
    cpu::block_amax(x.to(Layout::channels_last), by, last);
    EXPECT_EQ(row.to_vector<float>(), last.to_vector<float>()) << to_string(by);
  }
}

}  // namespace
}  // namespace fq::block_layout_test
