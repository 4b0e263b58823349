#include "fakequant/core/backend/cpu/codes/element_kernels.h"

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/error.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/numerics/detail/minifloat.h"
#include "fakequant/core/quantized.h"
#include "vector_patterns.h"

namespace fq::element_kernels_test {
namespace {

class Elements : public testing::TestWithParam<Format> {};

/// Expected code, mask and value of one element.
struct Expected {
  float code;
  bool mask;
};

Expected expected(float v, const Format& format, float scale, float amax) {
  const auto row = detail::grid_row(detail::GridFormat::of(format), scale, amax);
  const float number = scalar::is_nan_(v)    ? 0.0f
                       : format.is_integer() ? scalar::quantize_code(v, scale, row.lower, row.upper)
                                             : Minifloat::of(format.floating()).round(scalar::div_(v, scale));
  return {number, scalar::mask_closed(v, row.mask_lower, row.amax)};
}

bool bit(const Tensor& mask, std::int64_t i) {
  return (static_cast<const std::uint8_t*>(mask.raw())[i / 8] >> (i % 8) & 1) != 0;
}

struct Cut {
  std::int64_t tail;  ///< elements of a row after the last whole group
  Shape block;
};

/// Every fifth pattern, without NaN.
Tensor make_values(std::int64_t columns) {
  const auto all = patterns();
  std::vector<float> values;
  for (std::size_t i = 0; i < all.size(); i += 5)
    if (!scalar::is_nan_(all[i])) values.push_back(all[i]);
  const std::int64_t rows = static_cast<std::int64_t>(values.size()) / columns;
  values.resize(static_cast<std::size_t>(rows * columns));
  return Tensor::from(values, {rows, columns});
}

/// Ranges of all magnitudes, and some of zeros only.
Tensor make_ranges(const Shape& grid) {
  std::vector<float> out(static_cast<std::size_t>(numel(grid)));
  for (std::size_t j = 0; j < out.size(); ++j)
    out[j] = j % 11 == 0 ? 0.0f
                         : std::ldexp(1.0f + 0.1f * static_cast<float>(j % 7), static_cast<int>(j % 60) - 30);
  return Tensor::from(out, grid);
}

void compare(const Tensor& x, const Grid& grid, const Shape& block, std::int64_t target) {
  const QuantizedTensor out = quantize(x, grid);
  const Tensor numbers = code_values(out), back = dequantize(out);
  Tensor rounded = Tensor::empty(x.shape(), DType::bf16);
  detail::run(Device::cpu(), &detail::Kernels::dequantize, out, rounded);
  const std::int64_t columns = x.dim(1), across = (columns + block[1] - 1) / block[1];
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::int64_t j = i / columns / block[0] * across + i % columns / block[1];
    const float v = x.data<float>()[i], scale = grid.scale.data<float>()[j];
    const auto want = expected(v, grid.format, scale, grid.amax.data<float>()[j]);
    const float code = numbers.data<float>()[i];
    ASSERT_EQ(code, want.code) << v << " by " << scale << " on " << target;
    ASSERT_EQ(bit(out.mask, i), want.mask) << v << " by " << scale << " on " << target;
    const float value = scalar::dequantize_code(code, scale);
    ASSERT_EQ(back.data<float>()[i], value) << v << " on " << target;
    ASSERT_EQ(std::bit_cast<std::uint16_t>(rounded.data<bfloat16>()[i]),
              std::bit_cast<std::uint16_t>(bfloat16(value)))
        << v << " on " << target;
  }
}

TEST_P(Elements, MatchTheScalarResult) {
  for (const auto& [tail, block] : {Cut{0, {1, 16}}, {1, {1, 5}}, {37, {3, 7}}, {63, {1, 1}}}) {
    const Tensor x = make_values(1024 + tail);
    const auto granularity = Granularity::blocks({{0, block[0]}, {1, block[1]}});
    const auto grid =
        Grid::from_amax(GetParam(), granularity, make_ranges(granularity.scale_shape(x.shape())));
    run_on_every_target([&, &block = block](std::int64_t target) { compare(x, grid, block, target); });
  }
}

TEST_P(Elements, SupportPowerOfTwoScales) {
  const Tensor x = make_values(1024);
  for (const Shape& block : {Shape{1, 32}, Shape{1, 48}}) {
    const auto granularity = Granularity::per_group(block[1]);
    const auto grid = Grid::block_scaled(GetParam(), granularity,
                                         make_ranges(granularity.scale_shape(x.shape())), NumBits(8, 0), 0);
    run_on_every_target([&, &block = block](std::int64_t target) { compare(x, grid, block, target); });
  }
}

TEST_P(Elements, RejectNaN) {
  const auto grid = Grid::from_amax(GetParam(), Granularity::per_group(16), Tensor::full({5, 7}, 1.0));
  for (const std::int64_t at : {0, 63, 64, 499}) {
    Tensor x = Tensor::zeros({5, 100});
    x.mutable_data<float>()[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_THROW((void)quantize(x, grid), NumericError) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Elements,
                         testing::Values(Format(IntFormat{2}), Format(IntFormat{4, true}),
                                         Format(IntFormat{4, false, true}), Format(IntFormat{8}),
                                         Format(IntFormat{8, true}), Format(IntFormat{12}),
                                         Format(IntFormat{16}), Format(IntFormat{16, true}),
                                         Format(FloatFormat{4, 3}), Format(FloatFormat{5, 2}),
                                         Format(FloatFormat{3, 2}), Format(FloatFormat{2, 3}),
                                         Format(FloatFormat{2, 1})));

}  // namespace
}  // namespace fq::element_kernels_test
