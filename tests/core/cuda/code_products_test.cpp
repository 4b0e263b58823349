#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/ops/detail/learned_range.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/tape.h"

namespace fq::cuda_code_products_test {
namespace {

class CudaCodeProducts : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

Tensor numbers(const Shape& shape, int seed = 0) {
  Tensor out = Tensor::empty(shape);
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i)
    v[i] = static_cast<float>((i + seed) * 7919 % 4001 - 2000) / 1600.0f;
  return out;
}

Tensor to_cuda(const Tensor& x) { return x.to(Device::cuda()); }
QuantizedTensor to_cuda(const QuantizedTensor& x) {
  return {to_cuda(x.codes), x.grid.to(Device::cuda()), x.mask.defined() ? to_cuda(x.mask) : Tensor()};
}

Tensor ranges(const Granularity& by, const Shape& shape) {
  const std::int64_t count = by.is_per_tensor() ? 1 : numel(by.scale_shape(shape));
  Tensor out = Tensor::empty(by.is_per_tensor() ? Shape{} : Shape{count});
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < count; ++i) v[i] = 0.4f + 0.6f * static_cast<float>(i * 5 % 11) / 11.0f;
  return out;
}

QuantizedTensor codes(const Shape& shape, const Format& format, const Granularity& by = {},
                      Layout layout = Layout::row_major) {
  return quantize(numbers(shape).to(layout), Grid::from_amax(format, by, ranges(by, shape), "q"));
}

/// An NVFP4 tensor: blocks with E4M3 scales.
QuantizedTensor nvfp4(const Shape& shape) {
  const auto by = Granularity::per_group(16);
  return quantize(numbers(shape),
                  Grid::block_scaled(FloatFormat{2, 1}, by, ranges(by, shape), NumBits(4, 3), 1.3f, "q"));
}

TEST_F(CudaCodeProducts, ComputeProductScales) {
  const auto x = codes({2, 6}, IntFormat{});
  for (const Granularity& by : {Granularity::per_tensor(), Granularity::per_axis(0)})
    for (const std::int64_t channels : {6, 12}) {
      const auto w = codes({6, 5}, FloatFormat{4, 3}, by);
      EXPECT_TRUE(bitwise_equal(detail::product_scale(to_cuda(x), to_cuda(w), 0, channels),
                                detail::product_scale(x, w, 0, channels)));
    }
  const auto w = nvfp4({6, 32});
  EXPECT_TRUE(
      bitwise_equal(detail::product_scale(to_cuda(x), to_cuda(w), 0, 6), detail::product_scale(x, w, 0, 6)));
}

TEST_F(CudaCodeProducts, ScaleAndBiasProducts) {
  for (const Shape& shape : {Shape{3, 5, 7, 2}, Shape{20, 24, 9, 9}, Shape{0, 5, 2, 2}})
    for (const bool one_scale : {false, true})
      for (const bool biased : {false, true}) {
        const Tensor scale = one_scale ? Tensor::scalar(0.0371) : numbers({shape[1]}, 3);
        const Variable bias = biased ? Variable(numbers({shape[1]}, 11)) : Variable();
        Tensor y = numbers(shape).to(Layout::channels_last), moved = to_cuda(y).clone();
        detail::scale_products(moved, to_cuda(scale), biased ? Variable(to_cuda(bias.tensor())) : Variable());
        detail::scale_products(y, scale, bias);
        EXPECT_TRUE(bitwise_equal(moved, y)) << to_string(shape);
      }
}

void expect_same_gradients(const QuantizedTensor& x, const QuantizedTensor& w, int w_axis, const Tensor& dy) {
  for (const BackwardType type : {BackwardType::bf16, BackwardType::fp32}) {
    const BackwardScope scope(type);
    const detail::CodeGradients host_gradients(Variable(x), Variable(w), w_axis),
        moved(Variable(to_cuda(x)), Variable(to_cuda(w)), w_axis);
    // The host may keep bf16 numbers as floats.
    EXPECT_TRUE(bitwise_equal(moved.dy(to_cuda(dy)).to(DType::f32), host_gradients.dy(dy).to(DType::f32)));
    EXPECT_TRUE(bitwise_equal(moved.x().to(DType::f32), host_gradients.x().to(DType::f32)));
    EXPECT_TRUE(bitwise_equal(moved.w().to(DType::f32), host_gradients.w().to(DType::f32)));
    Tensor dw = numbers(w.shape(), 5), moved_dw = to_cuda(dw).clone();
    host_gradients.finish_dw(dw);
    moved.finish_dw(moved_dw);
    EXPECT_TRUE(bitwise_equal(moved_dw, dw));
  }
}

TEST_F(CudaCodeProducts, FusedGradientSumsMatchSeparateSumsBitwise) {
  for (const auto& [rows, channels] : {std::array{1, 64}, {257, 77}, {5000, 33}, {0, 5}})
    for (const DType dtype : {DType::bf16, DType::f32})
      for (const bool scaled : {false, true}) {
        const Tensor dy = to_cuda(numbers({rows, channels}, 3));
        const Tensor scales = to_cuda(numbers(scaled ? Shape{channels} : Shape{}, 1));
        Tensor out = Tensor::empty(dy.shape(), dtype, dy.device()), alone = out.clone();
        Tensor db = Tensor::empty({channels}, DType::f32, dy.device()), sums = db.clone();
        cuda::scale_and_sum(dy, scales, out, db);
        cuda::scale_to_bf16(dy, scales, channels, alone);
        cuda::bias_gradient(dy, sums);
        EXPECT_TRUE(bitwise_equal(out, alone)) << rows << " " << name(dtype) << scaled;
        EXPECT_TRUE(bitwise_equal(db, sums)) << rows << " " << name(dtype) << scaled;
      }
}

TEST_F(CudaCodeProducts, MatchTheCpuInBackward) {
  const Tensor rows = numbers({9, 6}, 3), image = numbers({3, 12, 5, 7}, 3).to(Layout::channels_last);
  for (const Format& format :
       {Format(IntFormat{}), Format(IntFormat{4, false, true}), Format(FloatFormat{4, 3})}) {
    for (const Granularity& by : {Granularity::per_tensor(), Granularity::per_axis(0)})
      expect_same_gradients(codes({9, 32}, format), codes({6, 32}, format, by), 0, rows);
    const auto x = codes({3, 8, 5, 7}, format, {}, Layout::channels_last);
    expect_same_gradients(x, codes({12, 8, 3, 3}, format, Granularity::per_axis(0)), 0, image);
    // The weights of a transposed convolution in two groups.
    expect_same_gradients(x, codes({8, 6, 3, 3}, format, Granularity::per_axis(1)), 1, image);
  }
  expect_same_gradients(codes({9, 32}, FloatFormat{4, 3}), nvfp4({6, 32}), 0, rows);
}

/// Three products read the codes of one input, as in attention.
TEST_F(CudaCodeProducts, ProductsOfOneInputDecodeItOnce) {
  const Variable leaf(to_cuda(numbers({9, 32})), true);
  const auto grid = Grid::from_amax(IntFormat{}, {}, to_cuda(Tensor::scalar(0.7)), "x");
  std::vector<QuantizedTensor> weights;
  for (int i = 0; i < 3; ++i)
    weights.push_back(quantize(to_cuda(numbers({6, 32}, i)),
                               Grid::from_amax(IntFormat{}, {}, to_cuda(Tensor::scalar(0.9)), "w")));
  const auto gradients = [&](bool shared) {
    std::vector<Variable> leaves;
    Variable y;
    for (int i = 0; i < 3; ++i) {
      leaves.emplace_back(to_cuda(numbers({6, 32}, i)), true);
      const Variable x = ops::quantize(leaf, grid, nullptr, shared),
                     one = ops::linear(
                         x, ops::attach_codes(leaves.back(), weights[static_cast<std::size_t>(i)]));
      y = y.defined() ? ops::add(y, one) : one;
    }
    const auto before = test::launches_so_far();
    y.backward(to_cuda(numbers({9, 6}, 5)));
    const auto launches = test::launches_so_far() - before;
    std::vector<Tensor> out;
    for (const Variable& w : leaves) out.push_back(w.grad());
    return std::pair{out, launches};
  };
  const auto [found, launches] = gradients(true);
  const auto [expected, more] = gradients(false);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(bitwise_equal(found[i], expected[i])) << i;
  EXPECT_LE(launches, more - 2);
}

TEST_F(CudaCodeProducts, FactorsOfWeightsReplaceTheirDecoding) {
  const Tensor w = to_cuda(numbers({6, 32}, 1));
  const auto grid = to_cuda(codes({6, 32}, IntFormat{}, Granularity::per_axis(0))).grid;
  const std::vector<QuantizeRequest> requests{{w, grid, true, true}};
  const QuantizedTensor with = quantize(requests).front(), without = quantize(w, grid);
  const Variable x(to_cuda(codes({9, 32}, IntFormat{})));
  const detail::CodeGradients found(x, Variable(with), 0), expected(x, Variable(without), 0);
  const auto before = test::launches_so_far();
  const Tensor factor = found.w();
  EXPECT_EQ(test::launches_so_far(), before);
  EXPECT_TRUE(bitwise_equal(factor, expected.w()));
}

/// Factors of NVFP4 weights are computed once for both passes.
TEST_F(CudaCodeProducts, BackwardReadsTheFactorsOfForward) {
  const Variable leaf(to_cuda(numbers({9, 32})), true), w_leaf(to_cuda(numbers({6, 32}, 1)), true);
  const auto grid = Grid::from_amax(FloatFormat{4, 3}, {}, to_cuda(Tensor::scalar(0.7)), "x");
  const QuantizedTensor w = to_cuda(nvfp4({6, 32}));
  const Variable x = ops::quantize(leaf, grid), y = ops::linear(x, ops::attach_codes(w_leaf, w));
  const Tensor dy = to_cuda(numbers({9, 6}, 5));
  cuda::count_work(true);
  y.backward(dy);
  const auto work = cuda::counted_work();
  cuda::count_work(false);
  for (const auto& kernel : work) EXPECT_NE(kernel.kernel, "dequantize");
  const detail::CodeGradients codes(Variable(*x.quantized()), Variable(w), 0);
  const Tensor factors = codes.dy(dy), expected = Tensor::empty({9, 32}, DType::f32, Device::cuda());
  Tensor product = expected;
  detail::multiply({factors, 9, 6}, {codes.w(), 6, 32}, product, 1, detail::Sharing::by_threads);
  EXPECT_TRUE(bitwise_equal(leaf.grad(), apply_mask(product, x.quantized()->mask)));
}

TEST_F(CudaCodeProducts, ComputeRangeGradients) {
  for (const Shape& shape : {Shape{3, 5, 7, 2}, Shape{64, 24, 9, 9}})
    for (const Format& format :
         {Format(IntFormat{}), Format(IntFormat{4, true, false}), Format(FloatFormat{2, 1})})
      for (const Layout layout : {Layout::row_major, Layout::channels_last})
        for (const AmaxGradient kind : {AmaxGradient::clip, AmaxGradient::lsq}) {
          const bool blocks = layout == Layout::row_major;
          std::vector<Granularity> granularities{Granularity::per_tensor()};
          if (blocks)
            granularities = {Granularity::per_tensor(), Granularity::per_axis(0), Granularity::per_axis(1),
                             Granularity::per_axis({0, 3}), Granularity::per_group(4, 1)};
          for (const auto& by : granularities) {
            if (bit_width(format.code_dtype()) < 8 && layout == Layout::channels_last) continue;
            const auto q = codes(shape, format, by, layout);
            const Tensor x = numbers(shape).to(layout), dy = numbers(shape, 17).to(layout);
            const auto found =
                detail::amax_gradient(to_cuda(x), to_cuda(q), to_cuda(dy), kind, 0.7).to_vector<float>();
            const auto expected = detail::amax_gradient(x, q, dy, kind, 0.7).to_vector<float>();
            ASSERT_EQ(found.size(), expected.size());
            // Sums of doubles in another order, then one rounding.
            for (std::size_t i = 0; i < found.size(); ++i)
              EXPECT_NEAR(found[i], expected[i], 1e-6 * (1 + std::abs(expected[i])))
                  << to_string(shape) << to_string(format) << to_string(by);
          }
        }
}

TEST_F(CudaCodeProducts, ComputeRangeGradientsOfSums) {
  const Shape shape{5, 6, 9, 7};
  Tensor sums = Tensor::empty(shape, DType::i32);
  for (std::int64_t i = 0; i < sums.numel(); ++i)
    sums.mutable_data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % 20011) - 10005;
  const auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.7), "q");
  const auto run = [&](Device device, AmaxGradient kind) {
    const Accumulator x{ProductSums{sums.to(device), {}, Tensor::full({}, 1e-4, DType::f32, device), 1},
                        true};
    const auto codes = requantize(x, grid.to(device), false);
    return detail::amax_gradient(x, codes, numbers(shape, 17).to(device), kind).item();
  };
  for (const AmaxGradient kind : {AmaxGradient::clip, AmaxGradient::lsq}) {
    const double expected = run(Device::cpu(), kind);
    EXPECT_NEAR(run(Device::cuda(), kind), expected, 1e-6 * (1 + std::abs(expected)));
  }
}

TEST_F(CudaCodeProducts, ReadEveryRowForARange) {
  const auto q = to_cuda(codes({4, 6}, IntFormat{}));
  const Variable amax(Tensor::scalar(1), true);
  const auto made = detail::attach_learned(Variable(to_cuda(numbers({4, 6}))), q, {amax}, {});
  EXPECT_EQ(made.node()->gradient->reads, std::nullopt);
}

TEST_F(CudaCodeProducts, UnboundedRangesKeepOnlyTheRelu) {
  Tensor sums = Tensor::empty({5, 7}, DType::i32);
  for (std::int64_t i = 0; i < 35; ++i)
    sums.mutable_data<std::int32_t>()[i] = static_cast<std::int32_t>(i * 7919 % 20011) - 10005;
  for (const float amax : {0.0f, 0.6f}) {
    auto grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(static_cast<double>(amax)), "q");
    grid.pass_through_bwd = true;
    const auto run = [&](Device device) {
      const Accumulator value{
          ProductSums{sums.to(device), {}, Tensor::full({}, 1.3e-4, DType::f32, device), 1}, true};
      const Variable leaf(Tensor::zeros({5, 7}, DType::f32, device), true);
      const Variable x =
          detail::record("test", value, {leaf}, [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
      return *ops::quantize(x, grid.to(device)).quantized();
    };
    const auto found = run(Device::cuda()), expected = run(Device::cpu());
    EXPECT_TRUE(bitwise_equal(found.codes, expected.codes));
    EXPECT_TRUE(bitwise_equal(found.mask, expected.mask));
    EXPECT_TRUE(bitwise_equal(found.grid.amax, expected.grid.amax));
  }
}

TEST_F(CudaCodeProducts, StepsDoNotSynchronize) {
  const auto grid = Grid::from_amax(IntFormat{}, {}, to_cuda(Tensor::scalar(0.7)), "q");
  const auto learned = Grid::from_amax(IntFormat{}, {}, to_cuda(Tensor::scalar(0.9)), "r");
  const Variable x(to_cuda(numbers({9, 32})), true), range(to_cuda(Tensor::scalar(0.9)), true);
  const auto before = test::waits_so_far();
  const Variable q = ops::quantize(x, grid);
  EXPECT_EQ(ops::quantize(q, grid).node(), q.node());
  const auto w = quantize(to_cuda(numbers({6, 32})),
                          Grid::from_amax(IntFormat{}, Granularity::per_axis(0),
                                          to_cuda(ranges(Granularity::per_axis(0), {6, 32})), "w"));
  const Accumulator sums{ProductSums{Tensor::zeros({9, 6}, DType::i32, Device::cuda()),
                                     {},
                                     detail::product_scale(*q.quantized(), w, 0, 6),
                                     1},
                         true};
  const auto codes = requantize(sums, grid);
  const ops::LearnedRange trained{range, AmaxGradient::lsq, 1};
  const Variable y = ops::quantize(q.as_float(), learned, &trained).as_float();
  y.backward(Tensor::full(y.shape(), 1.0, DType::f32, Device::cuda()));
  EXPECT_EQ(test::waits_so_far(), before);
  EXPECT_TRUE(codes.mask.defined());
  EXPECT_EQ(range.grad().numel(), 1);
}

}  // namespace
}  // namespace fq::cuda_code_products_test
