#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/accumulator.h"
#include "fakequant/core/error.h"
#include "same_numbers.h"

namespace fq::cuda_accumulators_test {
namespace {

class CudaAccumulators : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

Tensor to_cuda(const Tensor& x) { return x.to(Device::cuda()); }
Grid to_cuda(const Grid& grid) { return grid.to(Device::cuda()); }
QuantizedTensor to_cuda(const QuantizedTensor& x) { return {to_cuda(x.codes), to_cuda(x.grid), {}}; }

Accumulator to_cuda(const Accumulator& x);
struct ToCuda {
  using Value = decltype(Accumulator::value);
  Value operator()(const ProductSums& v) const {
    return ProductSums{to_cuda(v.sums), v.bias.defined() ? to_cuda(v.bias) : Tensor(), to_cuda(v.scale),
                       v.axis};
  }
  Value operator()(const NormalizedSums& v) const {
    return NormalizedSums{to_cuda(v.sums), to_cuda(v.factor), to_cuda(v.shift), v.axis,
                          v.bias.defined() ? to_cuda(v.bias) : Tensor()};
  }
  Value operator()(const PooledSums& v) const {
    return PooledSums{to_cuda(v.sums), to_cuda(v.scale), v.count};
  }
  Value operator()(const Averages& v) const { return Averages{to_cuda(v.values)}; }
  Value operator()(const CodeAddition& v) const { return CodeAddition{to_cuda(v.a), to_cuda(v.b)}; }
  Value operator()(const AccumulatorConcat& v) const {
    AccumulatorConcat out{{}, v.axis};
    for (const auto& part : v.parts) out.parts.push_back(to_cuda(part));
    return out;
  }
  Value operator()(const AccumulatorMove& v) const {
    return AccumulatorMove{{to_cuda(v.inner.at(0))}, v.move};
  }
  Value operator()(const DeferredFloats& v) const { return v; }  // only on CUDA
};
Accumulator to_cuda(const Accumulator& x) { return {std::visit(ToCuda{}, x.value), x.relu}; }

Tensor sums(const Shape& shape, std::int32_t range) {
  Tensor out = Tensor::empty(shape, DType::i32);
  auto* v = out.mutable_data<std::int32_t>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    v[i] = static_cast<std::int32_t>(i * 1103515245 % (2 * range + 1)) - range;
  return out;
}

Tensor floats(const Shape& shape, float least, float most) {
  Tensor out = Tensor::empty(shape);
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    v[i] = least + (most - least) * static_cast<float>(i * 7919 % 1009) / 1009.0f;
  return out;
}

QuantizedTensor codes(const Shape& shape, const Format& format, Layout layout, float amax, int zero_point) {
  const auto grid =
      Grid::from_amax(format, {}, Tensor::scalar(static_cast<double>(amax)), "in", false, zero_point);
  return quantize(floats(shape, -1.5f, 1.5f).to(layout), grid, false);
}

/// Grids of the readers, including a range of 0 and a zero point.
std::vector<Grid> readers() {
  std::vector<Grid> out;
  for (const int bits : {2, 4, 8, 16})
    for (const bool is_unsigned : {false, true})
      out.push_back(Grid::from_amax(IntFormat{bits, is_unsigned, false}, {}, Tensor::scalar(1.3), "out",
                                    false, bits == 8 && !is_unsigned ? 128 : 0));
  out.push_back(Grid::from_amax(IntFormat{8, false, true}, {}, Tensor::scalar(1.3), "narrow"));
  out.push_back(Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.0), "dead"));
  return out;
}

void expect_same(Accumulator x, const std::string& where) {
  for (const bool relu : {false, true}) {
    x.relu = relu;
    const Accumulator moved = to_cuda(x);
    Tensor mask, expected_mask;
    const Tensor values = to_float(moved, &mask), expected = to_float(x, &expected_mask);
    EXPECT_TRUE(bitwise_equal(values, expected)) << where << " relu " << relu;
    EXPECT_EQ(values.layout(), expected.layout()) << where;
    ASSERT_EQ(mask.defined(), expected_mask.defined()) << where;
    EXPECT_TRUE(!mask.defined() || bitwise_equal(mask, expected_mask)) << where;
    for (const auto& grid : readers()) {
      const auto host = requantize(x, grid), q = requantize(moved, to_cuda(grid));
      EXPECT_TRUE(bitwise_equal(q.codes, host.codes)) << where << " relu " << relu << to_string(grid.format);
      EXPECT_TRUE(bitwise_equal(q.mask, host.mask)) << where << " relu " << relu << to_string(grid.format);
      const auto plain = requantize(moved, to_cuda(grid), false);
      EXPECT_FALSE(plain.mask.defined());
      EXPECT_TRUE(bitwise_equal(plain.codes, host.codes)) << where;
    }
  }
}

const Shape kShapes[] = {{2, 3, 5, 7}, {1, 16, 4, 4}, {3, 1, 3, 3}, {20, 33, 5, 3}, {2, 24, 1, 1}};

TEST_F(CudaAccumulators, MatchTheCpuForProducts) {
  for (const Shape& shape : kShapes)
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      for (const int axis : {0, 1})
        for (const bool one_scale : {false, true}) {
          const std::int64_t channels = shape[static_cast<std::size_t>(axis)];
          const Tensor scale = one_scale ? Tensor::scalar(1.1e-4) : floats({channels}, 1e-5f, 2e-4f);
          const auto where = to_string(shape) + " axis " + std::to_string(axis);
          const Tensor x = sums(shape, 20000).to(layout);
          expect_same({ProductSums{x, {}, scale, axis}}, where);
          expect_same({ProductSums{x, sums({channels}, 3000), scale, axis}}, where + " bias");
        }
  expect_same({ProductSums{sums({70, 130}, 20000), sums({130}, 500), floats({130}, 1e-5f, 2e-4f), 1}},
              "rows");
  expect_same({ProductSums{sums({0, 4}, 9), {}, floats({4}, 1e-5f, 2e-4f), 1}}, "none");
}

TEST_F(CudaAccumulators, MatchTheCpuForNormalizedSums) {
  for (const Shape& shape : kShapes)
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      for (const Tensor& bias : {Tensor(), sums({shape[1]}, 3000)})
        expect_same({NormalizedSums{sums(shape, 20000).to(layout), floats({shape[1]}, -1e-4f, 2e-4f),
                                    floats({shape[1]}, -0.5f, 0.7f), 1, bias}},
                    to_string(shape));
}

TEST_F(CudaAccumulators, MatchTheCpuForPoolsAndAverages) {
  for (const Shape& shape : kShapes)
    for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
      expect_same({PooledSums{sums(shape, 6000).to(layout), Tensor::scalar(0.0137), 49}}, to_string(shape));
      expect_same({Averages{floats(shape, -2.0f, 2.0f).to(layout)}}, to_string(shape));
    }
}

TEST_F(CudaAccumulators, MatchTheCpuForAdditionsOfAllCodes) {
  const Format formats[] = {IntFormat{}, IntFormat{4, true, false}, IntFormat{12, false, false},
                            IntFormat{16, true, false}, FloatFormat{4, 3}};
  const auto compare = [](const Shape& shape, const Format& a, const Format& b) {
    for (const Layout layout : {Layout::row_major, Layout::channels_last})
      expect_same({CodeAddition{codes(shape, a, layout, 0.9f, 128), codes(shape, b, layout, 0.7f, 0)}},
                  to_string(shape) + to_string(a) + to_string(b));
  };
  for (const auto& a : formats)
    for (const auto& b : formats) compare({2, 3, 5, 7}, a, b);
  compare({20, 33, 5, 3}, formats[0], formats[0]);
}

TEST_F(CudaAccumulators, MatchTheCpuForMoves) {
  for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
    const Accumulator product{
        ProductSums{sums({2, 6, 5, 7}, 20000).to(layout), {}, floats({6}, 1e-5f, 2e-4f), 1}};
    const Accumulator flagged{product.value, true};
    const Move moves[] = {ReshapeMove{{4, 105}},     PermuteMove{{0, 2, 3, 1}}, PermuteMove{{3, 1, 0, 2}},
                          PermuteMove{{1, 0, 2, 3}}, CutMove{1, 1, 4},          CutMove{3, 2, 7},
                          CutMove{0, 1, 1}};
    for (const auto& inner : {product, Accumulator{AccumulatorConcat{{product, flagged}, 1}}})
      for (const auto& move : moves) {
        Accumulator x = inner;
        if (std::holds_alternative<ReshapeMove>(move)) x = product;
        x = moved(x, move);
        expect_same(x, to_string(x.shape()));
        expect_same(moved(x, CutMove{1, 0, x.shape()[1] / 2}), to_string(x.shape()) + " cut");
      }
  }
}

TEST_F(CudaAccumulators, ReportNaNOfBatchNormalization) {
  Tensor shift = floats({3}, -0.5f, 0.7f);
  shift.mutable_data<float>()[1] = std::nanf("");
  const Accumulator x{NormalizedSums{sums({2, 3, 4, 5}, 20000), floats({3}, -1e-4f, 2e-4f), shift, 1}, true};
  Tensor mask, expected_mask;
  EXPECT_TRUE(same_numbers(to_float(to_cuda(x), &mask), to_float(x, &expected_mask)));
  EXPECT_TRUE(bitwise_equal(mask, expected_mask));
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1.3), "bn.output_quantizer");
  EXPECT_THROW((void)requantize(x, grid), NumericError);
  QuantizedTensor q;
  EXPECT_NO_THROW(q = requantize(to_cuda(x), to_cuda(grid)));
  try {
    (void)q.codes.to(Device::cpu());
    FAIL() << "the NaN was not reported";
  } catch (const NumericError& error) {
    EXPECT_STREQ(error.what(), "[quantize] a NaN reached the quantizer 'bn.output_quantizer'");
  }
}

TEST_F(CudaAccumulators, RoundAndSaturateBiases) {
  const Tensor b = floats({37}, -3.0f, 3.0f);
  for (const Tensor& scale : {Tensor::scalar(1.3e-5), floats({37}, 1e-9f, 1e-4f)})
    for (const std::int64_t largest : {std::int64_t{0}, std::int64_t{1} << 30, std::int64_t{1} << 40}) {
      const Tensor codes = bias_codes(to_cuda(b), to_cuda(scale), largest);
      EXPECT_EQ(codes.device(), Device::cuda());
      EXPECT_TRUE(bitwise_equal(codes, bias_codes(b, scale, largest)));
      EXPECT_TRUE(bitwise_equal(bias_codes(to_cuda(b.to(DType::f64)), to_cuda(scale), largest), codes));
    }
}

TEST_F(CudaAccumulators, ReportNaNInABiasOnRead) {
  const Tensor b = Tensor::from({0.5f, std::numeric_limits<float>::quiet_NaN()});
  const Tensor codes = bias_codes(to_cuda(b), to_cuda(Tensor::scalar(0.1)), 1000, "[quantize] of bias");
  try {
    (void)codes.to(Device::cpu());
    FAIL() << "the NaN was not reported";
  } catch (const NumericError& error) {
    EXPECT_STREQ(error.what(), "[quantize] of bias");
  }
  EXPECT_EQ(codes.to(Device::cpu()).to_vector<std::int32_t>(), (std::vector<std::int32_t>{5, 0}));
}

TEST_F(CudaAccumulators, RejectReadersOnAnotherDevice) {
  const Accumulator x{Averages{floats({4}, -1, 1)}};
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(1.3), "q");
  EXPECT_THROW((void)requantize(to_cuda(x), grid), ArgumentError);
}

}  // namespace
}  // namespace fq::cuda_accumulators_test
