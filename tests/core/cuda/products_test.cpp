#include "core/products.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/backend/capture.h"
#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/random.h"

namespace fq::cuda_products_test {
namespace {

using detail::Codes;
using detail::ConvShape;

class CudaProducts : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// Numbers of few bits, whose products and sums floats of every type hold.
Tensor small_numbers(const Shape& shape, DType dtype, Layout layout = Layout::row_major) {
  Tensor out = Tensor::empty(shape, DType::f64);
  auto* v = out.mutable_data<double>();
  for (std::int64_t i = 0; i < out.numel(); ++i) v[i] = static_cast<double>((i * 29 + 7) % 13) - 6;
  return out.to(dtype).to(layout);
}

Tensor extreme_codes(std::int64_t count, DType dtype) {
  Tensor out = Tensor::empty({count}, dtype);
  auto* v = static_cast<std::uint8_t*>(out.mutable_raw());
  for (std::int64_t i = 0; i < count; ++i)
    v[i] = static_cast<std::uint8_t>(i % 5 == 0 ? i * 37
                                                : (dtype == DType::u8 ? 255 : (i % 7 == 0 ? 128 : 127)));
  return out;
}

Codes codes(const Tensor& x) { return {x.raw(), x.dtype(), x.dtype() == DType::u8 ? 255 : 128}; }

struct Exact {
  const char* name;
  DType x, w;
  cpu::ExactType type;
};
constexpr Exact kExact[] = {{"i8", DType::i8, DType::i8, cpu::ExactType::s8},
                            {"u8", DType::u8, DType::i8, cpu::ExactType::s8},
                            {"unsigned weights", DType::i8, DType::u8, cpu::ExactType::s8},
                            {"bf16", DType::u8, DType::i8, cpu::ExactType::bf16},
                            {"f32", DType::i8, DType::i8, cpu::ExactType::f32}};

TEST_F(CudaProducts, SumsOfCodesAreExactAtEveryLength) {
  struct Sizes {
    std::int64_t m, n, k;
  };
  for (const Sizes& s :
       {Sizes{3, 5, 7}, Sizes{2, 8, 64}, Sizes{2, 3, 518}, Sizes{3, 4, 519}, Sizes{2, 6, 1040},
        Sizes{2, 4, 1041}, Sizes{2, 3, 4608}, Sizes{1, 10, 16}, Sizes{0, 4, 16}, Sizes{2, 3, 0}})
    for (const Exact& e : kExact) {
      const Tensor x = extreme_codes(s.m * s.k, e.x), w = extreme_codes(s.n * s.k, e.w);
      Tensor right = Tensor::empty({s.m, s.n}, DType::i32),
             sums = Tensor::empty({s.m, s.n}, DType::i32, Device::cuda());
      const Tensor a = x.to(Device::cuda()), b = w.to(Device::cuda());
      {
        const cpu::ForceExactType every_processor_has(cpu::ExactType::f32);
        detail::run(right.device(), &detail::Kernels::exact_gemm, s.m, s.n, s.k, codes(x), codes(w), right);
      }
      const cpu::ForceExactType only(e.type);
      detail::run(sums.device(), &detail::Kernels::exact_gemm, s.m, s.n, s.k, codes(a), codes(b), sums);
      EXPECT_TRUE(bitwise_equal(sums, right)) << e.name << ' ' << s.m << 'x' << s.n << 'x' << s.k;
    }
}

// A captured product uses the first proposal of cuBLASLt. Among the later proposals, the simulated device has
// a fast one that adds in another order.
TEST_F(CudaProducts, TimedProductsHaveTheBitsOfTheFirstProposal) {
  constexpr std::int64_t m = 8, n = 16, k = 1 << 15;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    Tensor a = Tensor::empty({m, k}), b = Tensor::empty({k, n});
    fill_normal(a, 0, 1, 1);
    fill_normal(b, 0, 1, 2);
    const Tensor x = a.to(dtype).to(Device::cuda()), w = b.to(dtype).to(Device::cuda());
    const auto product = [&] {
      Tensor out = Tensor::empty({m, n}, DType::f32, Device::cuda());
      detail::multiply({x, m, k}, {w, k, n}, out);
      return out;
    };
    Tensor first;
    detail::Capture capture(Device::cuda());
    capture.add([&] { first = product(); });
    capture.launch(0);
    EXPECT_TRUE(bitwise_equal(product(), first)) << name(dtype);
    EXPECT_TRUE(bitwise_equal(product(), first)) << name(dtype);
  }
}

ConvShape make_depthwise(ConvShape shape) {
  shape.groups = shape.c;
  return shape;
}

std::vector<ConvShape> conv_shapes() {
  ConvShape grouped{2, 8, 6, 5, 12, 3, 3, 3, 5, {2, 1}, {1, 1}};
  grouped.groups = 4;
  ConvShape depthwise{1, 6, 5, 5, 6, 3, 3, 3, 3};
  depthwise.groups = 6;
  return {{2, 3, 7, 9, 5, 3, 3, 7, 9, {1, 1}, {1, 1}},
          {3, 16, 4, 4, 8, 1, 1, 4, 4},
          {1, 16, 6, 6, 10, 3, 2, 2, 3, {2, 2}, {0, 1}, {2, 1}},
          {2, 64, 3, 3, 4, 3, 3, 3, 3, {1, 1}, {1, 1}},
          {2, 8, 7, 6, 16, 3, 3, 7, 6, {1, 1}, {2, 2}, {2, 2}},
          {1, 3, 5, 5, 16, 3, 3, 5, 5, {1, 1}, {1, 1}},
          {1, 4, 10, 9, 4, 3, 3, 3, 3, {2, 3}, {0, 1}, {3, 2}},
          {1, 16, 4, 3, 16, 1, 1, 6, 5, {1, 1}, {1, 1}},
          // Several tiles of pixels and outputs, odd sizes, phases of strides without taps, one row, many
          // taps, single pixels of u8 codes, and sums in several parts.
          {5, 32, 9, 7, 80, 3, 3, 9, 7, {1, 1}, {1, 1}},
          {2, 16, 13, 12, 48, 3, 3, 7, 6, {2, 2}, {1, 1}},
          {2, 16, 9, 10, 32, 1, 1, 5, 5, {2, 2}},
          {1, 16, 12, 14, 16, 3, 3, 5, 4, {2, 3}, {2, 1}, {3, 2}},
          {1, 16, 11, 11, 16, 3, 3, 3, 3, {4, 4}, {1, 1}, {2, 2}},
          {1, 16, 1, 9, 32, 1, 3, 1, 9, {1, 1}, {0, 1}},
          {2, 48, 5, 4, 144, 5, 5, 5, 4, {1, 1}, {2, 2}},
          {3, 32, 75, 74, 20, 1, 1, 75, 74},
          {4, 8, 33, 31, 24, 3, 3, 33, 31, {1, 1}, {1, 1}},
          {2, 48, 6, 5, 24, 3, 3, 6, 5, {1, 1}, {1, 1}},
          {4, 8, 128, 128, 8, 1, 3, 128, 128, {1, 1}, {0, 1}},
          grouped,
          depthwise,
          make_depthwise({2, 8, 7, 6, 8, 3, 3, 7, 6, {1, 1}, {1, 1}}),
          make_depthwise({1, 12, 9, 8, 12, 5, 3, 4, 3, {2, 3}, {1, 1}, {1, 2}}),
          make_depthwise({3, 4, 40, 41, 4, 3, 3, 20, 21, {2, 2}, {1, 1}}),
          make_depthwise({0, 4, 4, 4, 4, 3, 3, 4, 4, {1, 1}, {1, 1}}),
          {0, 3, 4, 4, 4, 3, 3, 4, 4, {1, 1}, {1, 1}}};
}

TEST_F(CudaProducts, ConvolutionsOfCodesAreExact) {
  for (const ConvShape& s : conv_shapes())
    for (const Exact& e : kExact)
      for (const bool transposed : {false, true}) {
        const Shape in = transposed ? s.y_shape() : s.x_shape(), out = transposed ? s.x_shape() : s.y_shape();
        const Tensor x = extreme_codes(numel(in), e.x), w = extreme_codes(numel(s.w_shape()), e.w);
        Tensor right = Tensor::empty(out, DType::i32, Device::cpu(), Layout::channels_last);
        Tensor sums = Tensor::empty(out, DType::i32, Device::cuda(), Layout::channels_last);
        const Tensor a = x.to(Device::cuda()), b = w.to(Device::cuda());
        {
          const cpu::ForceExactType every_processor_has(cpu::ExactType::f32);
          detail::run(right.device(), &detail::Kernels::exact_conv, s, transposed, codes(x), codes(w), right);
        }
        const cpu::ForceExactType only(e.type);
        detail::run(sums.device(), &detail::Kernels::exact_conv, s, transposed, codes(a), codes(b), sums);
        EXPECT_TRUE(bitwise_equal(sums, right)) << e.name << ' ' << to_string(s.x_shape()) << transposed;
      }
}

/// A type that every processor multiplies: not all support bfloat16 products.
Tensor to_comparable(const Tensor& x) { return x.dtype() == DType::bf16 ? x.to(DType::f32) : x; }

TEST_F(CudaProducts, MultipliesMatricesInEveryOrder) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16})
    for (const bool flip_a : {false, true})
      for (const bool flip_b : {false, true})
        for (const std::int64_t batch : {1, 3}) {
          const std::int64_t m = 5, n = 7, k = 11;
          const Tensor a = small_numbers({batch * m * k}, dtype), b = small_numbers({batch * k * n}, dtype);
          const DType type = dtype == DType::f64 ? DType::f64 : DType::f32;
          Tensor right = Tensor::empty({batch, m, n}, type),
                 out = Tensor::empty({batch, m, n}, type, Device::cuda());
          const Tensor x = a.to(Device::cuda()), y = b.to(Device::cuda());
          detail::multiply({to_comparable(a), m, k, flip_a}, {to_comparable(b), k, n, flip_b}, right, batch);
          detail::multiply({x, m, k, flip_a}, {y, k, n, flip_b}, out, batch);
          EXPECT_TRUE(bitwise_equal(out, right)) << name(dtype) << flip_a << flip_b << batch;
        }
}

TEST_F(CudaProducts, ConvolvesFloatsForwardAndBackward) {
  constexpr auto nhwc = Layout::channels_last;
  for (const ConvShape& s : conv_shapes())
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const Tensor x = small_numbers(s.x_shape(), dtype, nhwc), w = small_numbers(s.w_shape(), dtype);
      const Tensor dy = small_numbers(s.y_shape(), dtype, nhwc);
      const Tensor a = x.to(Device::cuda()), b = w.to(Device::cuda()), g = dy.to(Device::cuda());
      const Tensor hx = to_comparable(x), hw = to_comparable(w), hdy = to_comparable(dy);
      EXPECT_TRUE(bitwise_equal(detail::conv_y(s, a, b), detail::conv_y(s, hx, hw)))
          << to_string(s.x_shape());
      EXPECT_TRUE(bitwise_equal(detail::conv_dx(s, g, b), detail::conv_dx(s, hdy, hw)))
          << to_string(s.x_shape());
      EXPECT_TRUE(bitwise_equal(detail::conv_dw(s, a, g), detail::conv_dw(s, hx, hdy)))
          << to_string(s.x_shape());
    }
}

/// bf16 numbers of all magnitudes up to 1, reproducible.
Tensor rough_numbers(const Shape& shape, std::uint32_t seed, Layout layout = Layout::row_major) {
  Tensor out = Tensor::empty(shape, DType::f32);
  auto* v = out.mutable_data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    v[i] = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
  }
  return out.to(DType::bf16).to(layout);
}
Tensor magnitudes(const Tensor& x) {
  Tensor out = x.clone();
  auto* bits = static_cast<std::uint16_t*>(out.mutable_raw());
  for (std::int64_t i = 0; i < out.numel(); ++i) bits[i] &= 0x7fffu;
  return out;
}

/// Expects |y - right| <= 5e-7 * sum of the magnitudes of the products. f32 sums err by up to 9e-8 of it on
/// the simulated device. Tensor cores truncate: an addition errs by up to twice as much, always towards 0.
void expect_near_sums(const Tensor& y, const Tensor& right, const Tensor& sums_of_magnitudes) {
  const Tensor values = y.to(Device::cpu()).to(DType::f64);
  const auto *a = static_cast<const double*>(values.raw()), *b = static_cast<const double*>(right.raw()),
             *m = static_cast<const double*>(sums_of_magnitudes.raw());
  double worst = 0;
  for (std::int64_t i = 0; i < right.numel(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::max(m[i], 1e-30));
  EXPECT_LE(worst, 5e-7);
}

TEST_F(CudaProducts, GradientsOfConvolutionsAreNearDoublesAndRepeat) {
  constexpr auto nhwc = Layout::channels_last;
  const ConvShape shapes[] = {{4, 8, 33, 31, 24, 3, 3, 33, 31, {1, 1}, {1, 1}},
                              {2, 16, 13, 12, 48, 3, 3, 7, 6, {2, 2}, {1, 1}},
                              {2, 64, 8, 8, 64, 3, 3, 8, 8, {1, 1}, {1, 1}}};
  for (const ConvShape& s : shapes) {
    const Tensor x = rough_numbers(s.x_shape(), 1, nhwc), w = rough_numbers(s.w_shape(), 2),
                 dy = rough_numbers(s.y_shape(), 3, nhwc);
    const auto wide = [](const Tensor& t) { return t.to(DType::f64); };
    const auto on_gpu = [](const Tensor& t) { return t.to(Device::cuda()); };
    const Tensor y = detail::conv_y(s, on_gpu(x), on_gpu(w)), dx = detail::conv_dx(s, on_gpu(dy), on_gpu(w)),
                 dw = detail::conv_dw(s, on_gpu(x), on_gpu(dy));
    expect_near_sums(y, detail::conv_y(s, wide(x), wide(w)),
                     detail::conv_y(s, wide(magnitudes(x)), wide(magnitudes(w))));
    expect_near_sums(dx, detail::conv_dx(s, wide(dy), wide(w)),
                     detail::conv_dx(s, wide(magnitudes(dy)), wide(magnitudes(w))));
    expect_near_sums(dw, detail::conv_dw(s, wide(x), wide(dy)),
                     detail::conv_dw(s, wide(magnitudes(x)), wide(magnitudes(dy))));
    // Every second launch runs its blocks and threads backwards.
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(bitwise_equal(detail::conv_y(s, on_gpu(x), on_gpu(w)), y));
      EXPECT_TRUE(bitwise_equal(detail::conv_dx(s, on_gpu(dy), on_gpu(w)), dx));
      EXPECT_TRUE(bitwise_equal(detail::conv_dw(s, on_gpu(x), on_gpu(dy)), dw));
    }
  }
}

std::vector<bool> finite_elements(const Tensor& x) {
  const Tensor values = x.to(Device::cpu()).to(DType::f64);
  std::vector<bool> out;
  for (std::int64_t i = 0; i < x.numel(); ++i)
    out.push_back(std::isfinite(static_cast<const double*>(values.raw())[i]));
  return out;
}

TEST_F(CudaProducts, SpecialsReachOnlyTheirWindows) {
  constexpr auto nhwc = Layout::channels_last;
  const ConvShape s{2, 16, 9, 8, 16, 3, 3, 5, 4, {2, 2}, {1, 1}};
  Tensor x = small_numbers(s.x_shape(), DType::f32, nhwc), dy = small_numbers(s.y_shape(), DType::f32, nhwc);
  x.mutable_data<float>(nhwc)[500] = std::numeric_limits<float>::infinity();
  dy.mutable_data<float>(nhwc)[93] = std::numeric_limits<float>::quiet_NaN();  // in windows without padding
  // Without zeros, which would turn an infinity into NaN.
  const Tensor w = Tensor::full(s.w_shape(), 0.5f, DType::f32);
  const auto factor = [](const Tensor& t) { return t.to(DType::bf16).to(Device::cuda()); };
  EXPECT_EQ(finite_elements(detail::conv_y(s, factor(x), factor(w))),
            finite_elements(detail::conv_y(s, x.to(DType::f64), w.to(DType::f64))));
  EXPECT_EQ(finite_elements(detail::conv_dx(s, factor(dy), factor(w))),
            finite_elements(detail::conv_dx(s, dy.to(DType::f64), w.to(DType::f64))));
  EXPECT_EQ(finite_elements(detail::conv_dw(s, factor(x), factor(dy))),
            finite_elements(detail::conv_dw(s, x.to(DType::f64), dy.to(DType::f64))));
}

TEST_F(CudaProducts, ComputesBiasesAndTheirGradients) {
  const Tensor y = small_numbers({37, 5}, DType::f32), bias = small_numbers({5}, DType::f32);
  Tensor on_cpu = y.clone(), gpu = y.to(Device::cuda());
  detail::add_bias(on_cpu, Variable(bias));
  detail::add_bias(gpu, Variable(bias.to(Device::cuda())));
  EXPECT_TRUE(bitwise_equal(gpu, on_cpu));
  const Tensor dy = small_numbers({4001, 33}, DType::f32);
  EXPECT_TRUE(bitwise_equal(detail::bias_gradient(dy.to(Device::cuda()), 33), detail::bias_gradient(dy, 33)));
}

}  // namespace
}  // namespace fq::cuda_products_test
