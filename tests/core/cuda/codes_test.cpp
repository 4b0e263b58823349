#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/error.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/tape.h"

namespace fq::cuda_codes_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class CudaCodes : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// Values inside and outside of ranges about 1, ties, both zeros, the smallest numbers and infinities.
Tensor numbers(const Shape& shape) {
  constexpr float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 1e-40f, -1e-40f, kInfinity, -kInfinity, 3e38f};
  Tensor out = Tensor::empty(shape);
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    v[i] = i % 13 == 5 ? special[i / 13 % 10] : static_cast<float>(i * 7919 % 4001 - 2000) / 1600.0f;
  return out;
}

/// The ranges that the grid requires: one of them is 0, one is the smallest effective range.
Tensor ranges(std::int64_t count, bool per_tensor) {
  Tensor out = Tensor::empty(per_tensor ? Shape{} : Shape{count});
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < count; ++i) v[i] = 0.3f + 0.7f * static_cast<float>(i * 5 % 11) / 11.0f;
  if (count > 2) v[1] = 0;
  if (count > 3) v[2] = 0x1p-24f;
  return out;
}

Grid to_cuda(const Grid& grid) { return grid.to(Device::cuda()); }

std::vector<Format> all_formats() {
  std::vector<Format> out;
  for (const int bits : {2, 4, 8, 9, 16})
    for (const bool is_unsigned : {false, true}) out.emplace_back(IntFormat{bits, is_unsigned, false});
  out.emplace_back(IntFormat{8, false, true});
  for (const auto& [e, m] : {std::pair{4, 3}, {5, 2}, {3, 2}, {2, 3}, {2, 1}})
    out.emplace_back(FloatFormat{e, m});
  return out;
}

/// Factors are the codes as bf16, of codes of one byte with one scale or scales along one axis.
void expect_factors(const Tensor& x, const QuantizedTensor& codes, const std::string& where) {
  const std::vector<QuantizeRequest> requests{{x.to(Device::cuda()), codes.grid, true, true}};
  const QuantizedTensor made = quantize(requests).front();
  EXPECT_TRUE(bitwise_equal(made.codes, codes.codes)) << where;
  EXPECT_TRUE(bitwise_equal(made.mask, codes.mask)) << where;
  const Granularity& by = codes.grid.granularity;
  const bool one_axis = by.is_per_tensor() || by.single_axis(x.rank()) >= 0;
  ASSERT_EQ(made.factors.defined(), one_axis && bit_width(codes.codes.dtype()) == 8) << where;
  if (!made.factors.defined()) return;
  EXPECT_EQ(made.factors.dtype(), DType::bf16);
  EXPECT_TRUE(bitwise_equal(made.factors.to(DType::f32), code_values(codes))) << where;
}

void expect_same(const Tensor& x, const Grid& grid, const std::string& where) {
  const auto host = quantize(x, grid), codes = quantize(x.to(Device::cuda()), to_cuda(grid));
  EXPECT_EQ(codes.codes.device(), Device::cuda());
  EXPECT_EQ(codes.layout(), host.layout());
  EXPECT_EQ(codes.codes.dtype(), host.codes.dtype());
  EXPECT_TRUE(bitwise_equal(codes.codes, host.codes)) << where;
  EXPECT_TRUE(bitwise_equal(codes.mask, host.mask)) << where;
  EXPECT_TRUE(bitwise_equal(dequantize(codes), dequantize(host))) << where;
  EXPECT_TRUE(bitwise_equal(code_values(codes), code_values(host))) << where;
  EXPECT_FALSE(quantize(x.to(Device::cuda()), to_cuda(grid), false).mask.defined());
  expect_factors(x, codes, where);
}

TEST_F(CudaCodes, MatchTheCpuForEveryFormatAndBlock) {
  const Shape shape{3, 5, 7};
  const Granularity granularities[] = {
      Granularity::per_tensor(),     Granularity::per_axis(0),
      Granularity::per_axis(1),      Granularity::per_axis(-1),
      Granularity::per_axis({0, 2}), Granularity::per_group(3),
      Granularity::per_group(16),    Granularity::per_group(2, 0),
      Granularity::blocks_2d(2, 4),  Granularity::blocks({{0, 2}, {1, 3}, {2, 4}})};
  for (const auto& format : all_formats())
    for (const auto& by : granularities) {
      const bool one = by.is_per_tensor();
      const auto amax = ranges(one ? 1 : numel(by.scale_shape(shape)), one);
      expect_same(numbers(shape), Grid::from_amax(format, by, amax, "q"),
                  to_string(format) + " " + to_string(by));
    }
}

TEST_F(CudaCodes, RoundValuesNextToMidpoints) {
  constexpr std::int64_t rows = 64, codes = 300, near = 7;
  const Tensor amax = ranges(rows, false);
  for (const Format& format : {Format(IntFormat{}), Format(IntFormat{8, true, false}), Format(IntFormat{9}),
                               Format(FloatFormat{4, 3}), Format(FloatFormat{2, 1})}) {
    const auto grid = Grid::from_amax(format, Granularity::per_axis(0), amax, "q");
    Tensor x = Tensor::empty({rows, codes * near});
    auto* v = x.mutable_data<float>();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const std::int64_t code = i / near % codes;
      const float middle = (static_cast<float>(code) + 0.5f) * grid.scale.data<float>()[i / (codes * near)];
      const auto word = std::bit_cast<std::int32_t>(format.is_integer() ? middle : middle * 0.25f);
      v[i] = std::bit_cast<float>(word + static_cast<std::int32_t>(i % near) - 3) *
             (code % 2 == 0 || !format.is_integer() ? 1.0f : -1.0f);
    }
    expect_same(x, grid, to_string(format));
  }
}

TEST_F(CudaCodes, HandleLayoutsAndSizes) {
  for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{1, 16, 4, 4}, Shape{5, 1, 3, 3}, Shape{40, 33, 8, 9}})
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      for (int axis = -1; axis < 4; ++axis) {
        const auto by = axis < 0 ? Granularity::per_tensor() : Granularity::per_axis(axis);
        const auto amax = ranges(axis < 0 ? 1 : shape[static_cast<std::size_t>(axis)], axis < 0);
        expect_same(numbers(shape).to(layout), Grid::from_amax(IntFormat{}, by, amax, "q"),
                    to_string(shape) + " axis " + std::to_string(axis));
      }
}

TEST_F(CudaCodes, HandleWholeColumnGroups) {
  for (const Shape& shape : {Shape{1, 8}, Shape{33, 16}, Shape{6, 5, 24}, Shape{9001, 24}})
    for (const Format& format : {Format(IntFormat{}), Format(IntFormat{8, true, false}), Format(IntFormat{3}),
                                 Format(IntFormat{9}), Format(FloatFormat{4, 3})}) {
      Tensor amax = ranges(shape.back(), false);
      amax.mutable_data<float>()[5] = 1e-7f;
      expect_same(numbers(shape), Grid::from_amax(format, Granularity::per_axis(-1), amax, "q"),
                  to_string(shape) + " " + to_string(format));
      if (shape[0] == 9001) {  // scales whose quotients are true divisions, in one group of three
        amax.mutable_data<float>()[11] = 1e37f;
        expect_same(numbers(shape), Grid::from_amax(format, Granularity::per_axis(-1), amax, "q"), "divided");
      }
    }
  Tensor x = numbers({20, 8});
  x.mutable_data<float>()[77] = std::nanf("");
  const auto grid = Grid::from_amax(IntFormat{}, Granularity::per_axis(1), ranges(8, false), "q");
  const auto codes = quantize(x.to(Device::cuda()), to_cuda(grid));
  EXPECT_THROW((void)codes.codes.to(Device::cpu()), NumericError);
  x.mutable_data<float>()[77] = 0;
  EXPECT_TRUE(bitwise_equal(codes.codes, quantize(x, grid).codes));
}

TEST_F(CudaCodes, HandleLongBlocksOfManyAxes) {
  for (const Shape& shape : {Shape{64, 1000}, Shape{9, 3, 2, 5, 3, 4}, Shape{1}, Shape{}, Shape{0, 4}})
    for (const std::int64_t length : {1, 5, 16, 24}) {
      if (shape.empty()) continue;
      const auto by = Granularity::per_group(length);
      expect_same(numbers(shape),
                  Grid::from_amax(FloatFormat{2, 1}, by, ranges(numel(by.scale_shape(shape)), false), "q"),
                  to_string(shape) + " by " + std::to_string(length));
    }
  expect_same(numbers({}), Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.7), "q"), "one element");
  expect_same(numbers({0, 3}), Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.7), "q"), "none");
}

TEST_F(CudaCodes, HandleBlocksWithEightBitScales) {
  const Shape shape{33, 80};
  const auto amax = [&](std::int64_t length) {
    return ranges(numel(Granularity::per_group(length).scale_shape(shape)), false);
  };
  for (const auto& [e, m] : {std::pair{4, 3}, {5, 2}, {3, 2}, {2, 3}, {2, 1}})
    expect_same(numbers(shape),
                Grid::block_scaled(FloatFormat{e, m}, Granularity::per_group(32), amax(32), NumBits(8, 0),
                                   1.0f, "mx"),
                "mx");
  expect_same(numbers(shape),
              Grid::block_scaled(FloatFormat{2, 1}, Granularity::per_group(16), amax(16), NumBits(4, 3), 1.0f,
                                 "nvfp4"),
              "nvfp4");
}

TEST_F(CudaCodes, QuantizeSeveralTensorsAtOnce) {
  for (const bool with_blocks : {false, true}) {
    std::vector<QuantizeRequest> host, moved;
    for (const Shape& shape : {Shape{5, 7}, Shape{0, 7}, Shape{64, 33}, Shape{1, 1}, Shape{300, 41}})
      for (const auto& by :
           {Granularity::per_tensor(), Granularity::per_axis(0), Granularity::per_group(4)}) {
        if (by == Granularity::per_group(4) && !with_blocks) continue;
        const bool one = by.is_per_tensor();
        const auto amax = ranges(one ? 1 : numel(by.scale_shape(shape)), one);
        host.push_back({numbers(shape), Grid::from_amax(IntFormat{}, by, amax, "w"), shape[0] != 64});
        moved.push_back(
            {host.back().x.to(Device::cuda()), to_cuda(host.back().grid), host.back().with_mask, true});
      }
    const auto codes = quantize(moved), expected = quantize(host);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(bitwise_equal(codes[i].codes, expected[i].codes)) << i;
      ASSERT_EQ(codes[i].mask.defined(), expected[i].mask.defined()) << i;
      EXPECT_TRUE(!codes[i].mask.defined() || bitwise_equal(codes[i].mask, expected[i].mask)) << i;
      EXPECT_FALSE(expected[i].factors.defined());
      if (codes[i].factors.defined()) {
        EXPECT_TRUE(bitwise_equal(codes[i].factors.to(DType::f32), code_values(expected[i]))) << i;
      }
    }
  }
}

TEST_F(CudaCodes, HandleUnalignedSlices) {
  const Tensor x = numbers({8, 37});
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.7), "q");
  const auto host = quantize(x.slice(3, 7), grid),
             codes = quantize(x.to(Device::cuda()).slice(3, 7), to_cuda(grid));
  EXPECT_TRUE(bitwise_equal(codes.codes, host.codes));
  EXPECT_TRUE(bitwise_equal(codes.mask, host.mask));
}

TEST_F(CudaCodes, RoundOtherFloatTypesFirst) {
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.7), "q");
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16})
    expect_same(numbers({17, 9}).to(dtype), grid, std::string(name(dtype)));
}

TEST_F(CudaCodes, ReportNaNOnTheNextRead) {
  Tensor x = numbers({1000});
  x.mutable_data<float>()[123] = std::nanf("");
  for (const Format& format : {Format(IntFormat{}), Format(FloatFormat{4, 3})}) {
    const auto grid = Grid::from_amax(format, {}, Tensor::scalar(0.7), "conv1.input_quantizer");
    QuantizedTensor codes;
    EXPECT_NO_THROW(codes = quantize(x.to(Device::cuda()), to_cuda(grid)));
    try {
      (void)codes.codes.to(Device::cpu());
      FAIL() << "the NaN was not reported";
    } catch (const NumericError& error) {
      EXPECT_STREQ(error.what(), "[quantize] a NaN reached the quantizer 'conv1.input_quantizer'");
    }
    Tensor as_code = x.clone(), as_mask = x.clone();
    as_code.mutable_data<float>()[123] = 0;
    as_mask.mutable_data<float>()[123] = kInfinity;
    EXPECT_TRUE(bitwise_equal(codes.codes, quantize(as_code, grid).codes));
    EXPECT_TRUE(bitwise_equal(codes.mask, quantize(as_mask, grid).mask));
  }
}

TEST_F(CudaCodes, RejectRangesOnAnotherDevice) {
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.7), "q");
  EXPECT_THROW((void)quantize(numbers({3}).to(Device::cuda()), grid), ArgumentError);
  EXPECT_THROW((void)quantize(numbers({3}), to_cuda(grid)), ArgumentError);
}

TEST_F(CudaCodes, PassGradientsThroughTheMask) {
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.7), "q");
  for (const Shape& shape : {Shape{3, 5, 7, 2}, Shape{64, 33, 3, 3}})
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
        const Tensor x = numbers(shape), mask = quantize(x.to(layout), grid).mask;
        const Tensor dy = numbers(shape).to(dtype),
                     dx = apply_mask(dy.to(Device::cuda()), mask.to(Device::cuda()));
        EXPECT_EQ(dx.layout(), layout);
        EXPECT_TRUE(bitwise_equal(dx, apply_mask(dy, mask))) << name(dtype);
        const Tensor same = dy.to(layout).to(Device::cuda());
        EXPECT_TRUE(
            bitwise_equal(detail::masked_gradient(same, mask.to(Device::cuda())), apply_mask(dy, mask)));
      }
}

}  // namespace
}  // namespace fq::cuda_codes_test
