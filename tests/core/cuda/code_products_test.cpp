#include <limits>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/activations.h"
#include "fakequant/core/ops/detail/learned_range.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/ops.h"
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
    detail::PendingGradient moved_dy(to_cuda(dy)), host_dy(dy);
    EXPECT_TRUE(bitwise_equal(moved.dy(moved_dy).to(DType::f32), host_gradients.dy(host_dy).to(DType::f32)));
    EXPECT_TRUE(bitwise_equal(moved.x().to(DType::f32), host_gradients.x().to(DType::f32)));
    EXPECT_TRUE(bitwise_equal(moved.w().to(DType::f32), host_gradients.w().to(DType::f32)));
    const Tensor product = numbers(w.shape(), 5);
    for (const Tensor& mask : {Tensor(), w.mask}) {
      auto dw = host_gradients.weight_gradient(product), moved_dw = moved.weight_gradient(to_cuda(product));
      dw.add_mask(mask);
      moved_dw.add_mask(mask.defined() ? to_cuda(mask) : mask);
      EXPECT_TRUE(bitwise_equal(moved_dw.evaluate(), dw.evaluate()));
    }
  }
}

TEST_F(CudaCodeProducts, FusedGradientSumsMatchSeparateSumsBitwise) {
  for (const auto& [rows, channels] :
       {std::array{1, 64}, {257, 77}, {5000, 33}, {0, 5}, {0, 8}, {700, 520}, {9, 48}})
    for (const DType dtype : {DType::bf16, DType::f32})
      // One scale, one a channel, or with groups, scales that repeat.
      for (const int count : {1, channels, channels % 16 == 0 ? channels / 2 : 1}) {
        const Tensor dy = to_cuda(numbers({rows, channels}, 3));
        const Tensor scales = to_cuda(numbers(count == 1 ? Shape{} : Shape{count}, 1));
        Tensor out = Tensor::empty(dy.shape(), dtype, dy.device()), alone = out.clone();
        Tensor db = Tensor::empty({channels}, DType::f32, dy.device()), sums = db.clone();
        cuda::scale_gradient(detail::PendingGradient(dy), scales, channels, out, db);
        cuda::scale_to_bf16(dy, scales, channels, alone);
        cuda::bias_gradient(dy, sums);
        EXPECT_TRUE(bitwise_equal(out, alone)) << rows << " " << name(dtype) << count;
        EXPECT_TRUE(bitwise_equal(db, sums)) << rows << " " << name(dtype) << count;
      }
}

/// Returns the factor of the products and the sums of a gradient whose steps are computed first.
std::vector<Tensor> scaled_by_steps(detail::PendingGradient dy, const Tensor& scales, std::int64_t channels) {
  const Tensor floats = dy.evaluate().clone();
  Tensor out = Tensor::empty(floats.shape(), DType::bf16, floats.device()),
         db = Tensor::empty({channels}, DType::f32, floats.device());
  cuda::scale_to_bf16(floats, scales, channels, out);
  cuda::bias_gradient(floats, db);
  return {out, db};
}

TEST_F(CudaCodeProducts, PendingStepsMatchSeparateKernelsBitwise) {
  const std::vector<detail::Activation> functions{
      {detail::Relu{}}, {detail::Gelu{}}, {detail::GeluTanh{}}, {detail::Silu{}}};
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [rows, channels] : {std::array{3, 8}, {257, 77}, {300, 264}, {1, 16}})
    for (std::size_t step = 0; step <= functions.size(); ++step)
      for (const bool masked : {false, true})
        for (const bool summed : {false, true}) {
          const Shape shape{rows, channels};
          Tensor values = numbers(shape, 3), saved = numbers(shape, 11);
          values.mutable_data<float>()[1] = std::nanf("");
          values.mutable_data<float>()[2] = infinity;
          saved.mutable_data<float>()[4] = -infinity;
          saved.mutable_data<float>()[5] = std::nanf("");
          detail::PendingGradient dy(to_cuda(values));
          if (masked) dy.add_mask(to_cuda(codes(shape, IntFormat{}).mask));
          if (step > 0)
            dy.add_slope(std::make_shared<detail::Activation>(functions[step - 1]), to_cuda(saved));
          const Tensor scales = to_cuda(numbers({channels}, 1));
          const auto expected = scaled_by_steps(dy, scales, channels);
          Tensor out = Tensor::empty(shape, DType::bf16, Device::cuda()),
                 db = summed ? Tensor::empty({channels}, DType::f32, Device::cuda()) : Tensor();
          cuda::scale_gradient(dy, scales, channels, out, db);
          EXPECT_TRUE(bitwise_equal(out, expected[0])) << rows << ' ' << step << masked;
          EXPECT_TRUE(!summed || bitwise_equal(db, expected[1])) << rows << ' ' << step << masked;
        }
}

/// Returns x as the result of an operator that leaves no gradient pending, and adds no other gradients.
Variable between(const Variable& x) {
  return detail::record("between", x.value(), {x}, [](const Tensor& dy) { return std::vector<Tensor>{dy}; });
}

/// Gradients of x + fc2(gelu(fc1(norm(x)))) with int8 codes and of its parameters. `fused`: operators leave
/// steps to each other.
std::vector<Tensor> block_gradients(bool fused, bool rms, std::int64_t width, Device device) {
  const auto pass = [fused](const Variable& v) { return fused ? v : between(v); };
  const auto leaf = [&](const Shape& shape, int seed) {
    return Variable(numbers(shape, seed).to(device), true);
  };
  const Grid grid = Grid::from_amax(IntFormat{}, {}, Tensor::scalar(0.9), "a").to(device);
  const auto by = Granularity::per_axis(0);
  const auto product = [&](const Variable& x, const Variable& w, const Variable& b) {
    const Grid w_grid = Grid::from_amax(IntFormat{}, by, ranges(by, w.shape()), "w").to(device);
    return ops::linear(pass(ops::quantize(x, grid)), pass(ops::quantize(w, w_grid)), b);
  };
  const Variable input = leaf({3, 5, width}, 1), gamma = leaf({width}, 2), beta = leaf({width}, 3),
                 w1 = leaf({4 * width, width}, 4), b1 = leaf({4 * width}, 5),
                 w2 = leaf({width, 4 * width}, 6);
  const Variable x = between(input), from = pass(x);
  const Variable normal = pass(rms ? ops::rms_norm(from, gamma) : ops::layer_norm(from, gamma, beta));
  const Variable hidden = pass(ops::gelu(pass(product(normal, w1, b1).as_float())));
  const Variable y = ops::add(x, product(hidden, w2, {}));
  y.backward(numbers(y.shape(), 7).to(device));
  std::vector<Tensor> out{input.grad(), gamma.grad(), w1.grad(), b1.grad(), w2.grad()};
  if (!rms) out.push_back(beta.grad());
  return out;
}

TEST_F(CudaCodeProducts, FusedBlocksMatchSeparateKernelsBitwise) {
  for (const BackwardType type : {BackwardType::bf16, BackwardType::fp32})
    for (const bool rms : {false, true})
      for (const std::int64_t width : {std::int64_t{16}, std::int64_t{13}}) {
        const BackwardScope scope(type);
        const auto fused = block_gradients(true, rms, width, Device::cuda()),
                   apart = block_gradients(false, rms, width, Device::cuda());
        for (std::size_t i = 0; i < fused.size(); ++i)
          EXPECT_TRUE(bitwise_equal(fused[i], apart[i])) << i << ' ' << rms << width;
        const auto host = block_gradients(true, false, width, Device::cpu()),
                   host_apart = block_gradients(false, false, width, Device::cpu());
        for (std::size_t i = 0; i < host.size(); ++i) EXPECT_TRUE(bitwise_equal(host[i], host_apart[i])) << i;
      }
}

/// Gradients of two convolutions of int8 codes with a ReLU between them.
std::vector<Tensor> conv_gradients(bool fused, Layout layout, Device device) {
  const auto pass = [fused](const Variable& v) { return fused ? v : between(v); };
  const auto leaf = [&](const Shape& shape, int seed) {
    return Variable(numbers(shape, seed).to(shape.size() == 4 ? layout : Layout::row_major).to(device), true);
  };
  const auto grid = [&](bool is_unsigned) {
    return Grid::from_amax(IntFormat{8, is_unsigned}, {}, Tensor::scalar(0.9), "a").to(device);
  };
  const auto quantized = [&](const Variable& w) {
    const auto by = Granularity::per_axis(0);
    return pass(ops::quantize(w, Grid::from_amax(IntFormat{}, by, ranges(by, w.shape()), "w").to(device)));
  };
  const Variable x = leaf({2, 8, 5, 7}, 1), w1 = leaf({16, 8, 3, 3}, 2), b1 = leaf({16}, 3),
                 w2 = leaf({8, 16, 1, 1}, 4);
  const Variable sums = ops::conv2d(pass(ops::quantize(x, grid(false))), quantized(w1), b1);
  const Variable hidden = pass(ops::quantize(pass(ops::relu(pass(sums))), grid(true)));
  const Variable y = ops::conv2d(hidden, quantized(w2)).as_float();
  y.backward(numbers(y.shape(), 7).to(y.layout()).to(device));
  return {x.grad(), w1.grad(), b1.grad(), w2.grad()};
}

TEST_F(CudaCodeProducts, FusedConvolutionsMatchSeparateKernelsBitwise) {
  const BackwardScope scope(BackwardType::bf16);
  for (const Layout layout : {Layout::row_major, Layout::channels_last}) {
    const auto fused = conv_gradients(true, layout, Device::cuda()),
               apart = conv_gradients(false, layout, Device::cuda());
    for (std::size_t i = 0; i < fused.size(); ++i) EXPECT_TRUE(bitwise_equal(fused[i], apart[i])) << i;
  }
}

TEST_F(CudaCodeProducts, FusedBlocksLaunchNoKernelsForSteps) {
  const BackwardScope scope(BackwardType::bf16);
  cuda::count_work(true);
  (void)block_gradients(true, false, 16, Device::cuda());
  const auto work = cuda::counted_work();
  cuda::count_work(false);
  for (const auto& each : work) {
    EXPECT_NE(each.kernel, "apply_mask");
    EXPECT_NE(each.kernel, "activate_backward");
    EXPECT_TRUE(each.kernel != "combine" || each.launches == 1)
        << each.launches;  // the sum of the forward pass
    EXPECT_TRUE(each.kernel != "scale_weight_gradient" || each.launches == 2) << each.launches;
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
  detail::PendingGradient gradient(dy);
  const Tensor factors = codes.dy(gradient), expected = Tensor::empty({9, 32}, DType::f32, Device::cuda());
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
