#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "core/operator_run.h"
#include "cuda_device.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/ops/ops.h"

namespace fq::cuda_pool_test {
namespace {

using detail::PoolSizes;

class CudaPool : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

/// Windows side by side, overlapping, cut by the edge, with gaps between them, of a whole image, and of more
/// pixels than a byte counts.
constexpr PoolSizes kWindows[] = {
    {3, 1, 16, 12, 2, 2, 2, 2, 0, 0, 8, 6}, {2, 1, 13, 12, 3, 3, 2, 2, 1, 1, 7, 6},
    {2, 1, 5, 5, 3, 2, 1, 1, 1, 0, 5, 4},   {1, 1, 9, 9, 2, 1, 3, 4, 0, 0, 3, 3},
    {2, 1, 4, 3, 4, 3, 1, 1, 0, 0, 1, 1},   {2, 1, 18, 16, 17, 16, 1, 1, 0, 0, 2, 1}};
constexpr std::int64_t kChannels[] = {1, 3, 8, 16, 37};

template <class F>
void run_all_sizes(F&& f) {
  for (PoolSizes s : kWindows)
    for (const std::int64_t c : kChannels) {
      s.c = c;
      f(s);
    }
}

Shape input(const PoolSizes& s) { return {s.n, s.c, s.h, s.w}; }
Shape output(const PoolSizes& s) { return {s.n, s.c, s.oh, s.ow}; }

/// Few different values, so that there are equal ones.
Tensor values(const Shape& shape, DType dtype) {
  std::mt19937 random(5);
  std::vector<double> out(static_cast<std::size_t>(numel(shape)));
  for (double& v : out) v = static_cast<double>(random() % 40) - (dtype == DType::u8 ? 0.0 : 20.0);
  if (dtype == DType::f32)
    for (std::size_t i = 0; i < out.size(); i += 31) out[i] = std::numeric_limits<double>::quiet_NaN();
  return Tensor::from(out, shape).to(dtype).to(Layout::channels_last);
}
Tensor gradients(const Shape& shape, DType dtype) {
  return test::random_values(shape, 7).to(dtype).to(Layout::channels_last);
}
Tensor empty(const Shape& shape, DType dtype, Device device) {
  return Tensor::empty(shape, dtype, device, Layout::channels_last);
}

bool same(const Tensor& gpu, const Tensor& host) { return bitwise_equal(gpu.to(Device::cpu()), host); }

TEST_F(CudaPool, MaxPoolHandlesEveryType) {
  run_all_sizes([](const PoolSizes& s) {
    const DType places = s.window() <= detail::byte_places ? DType::u8 : DType::i32;
    for (const DType dtype : {DType::f32, DType::f64, DType::i8, DType::u8, DType::i16, DType::i32}) {
      const Tensor x = values(input(s), dtype);
      Tensor y = empty(output(s), dtype, Device::cpu()), argmax = empty(output(s), places, Device::cpu());
      Tensor far = empty(output(s), dtype, Device::cuda()),
             far_argmax = empty(output(s), places, Device::cuda());
      Tensor alone = empty(output(s), dtype, Device::cuda());
      cpu::max_pool(x, s, y, &argmax, {});
      cuda::max_pool(x.to(Device::cuda()), s, far, &far_argmax, {});
      cuda::max_pool(x.to(Device::cuda()), s, alone, nullptr, {});
      EXPECT_TRUE(same(far, y)) << name(dtype);
      EXPECT_TRUE(same(alone, y)) << name(dtype);
      EXPECT_TRUE(same(far_argmax, argmax)) << name(dtype);
    }
  });
}

TEST_F(CudaPool, NegativeFactorsPoolTheSmallest) {
  run_all_sizes([](const PoolSizes& s) {
    const Tensor x = values(input(s), DType::i32), factor = test::random_values({s.c}, 3).to(DType::f32);
    const DType places = s.window() <= detail::byte_places ? DType::u8 : DType::i32;
    Tensor y = empty(output(s), DType::i32, Device::cpu()), argmax = empty(output(s), places, Device::cpu());
    Tensor far = empty(output(s), DType::i32, Device::cuda());
    Tensor far_argmax = empty(output(s), places, Device::cuda());
    cpu::max_pool(x, s, y, &argmax, factor);
    cuda::max_pool(x.to(Device::cuda()), s, far, &far_argmax, factor.to(Device::cuda()));
    EXPECT_TRUE(same(far, y));
    EXPECT_TRUE(same(far_argmax, argmax));
  });
}

TEST_F(CudaPool, MaxPoolGradientsMatchTheCpuBitwise) {
  run_all_sizes([](const PoolSizes& s) {
    const DType places = s.window() <= detail::byte_places ? DType::u8 : DType::i32;
    for (const DType dtype : {DType::f32, DType::f64}) {
      Tensor y = empty(output(s), dtype, Device::cpu()), argmax = empty(output(s), places, Device::cpu());
      cpu::max_pool(values(input(s), dtype), s, y, &argmax, {});
      const Tensor dy = gradients(output(s), dtype);
      Tensor dx = empty(input(s), dtype, Device::cpu()), far = empty(input(s), dtype, Device::cuda());
      cpu::max_pool_backward(dy, argmax, s, dx);
      cuda::max_pool_backward(dy.to(Device::cuda()), argmax.to(Device::cuda()), s, far);
      EXPECT_TRUE(same(far, dx)) << name(dtype);
    }
  });
}

TEST_F(CudaPool, AveragePoolMatchesTheCpuBitwise) {
  run_all_sizes([](const PoolSizes& s) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i8, DType::u8})
      for (const bool padded : {false, true}) {
        const bool codes = bit_width(dtype) == 8;
        const DType result = codes ? DType::f32 : dtype;
        const Tensor x = codes ? values(input(s), dtype) : gradients(input(s), dtype);
        const Tensor scale = codes ? Tensor::scalar(0.0123) : Tensor(), dy = gradients(output(s), result);
        Tensor y = empty(output(s), result, Device::cpu()), far = empty(output(s), result, Device::cuda());
        cpu::avg_pool(x, s, padded, scale, y);
        cuda::avg_pool(x.to(Device::cuda()), s, padded, scale.to(Device::cuda()), far);
        EXPECT_TRUE(same(far, y)) << name(dtype) << padded;
        Tensor dx = empty(input(s), result, Device::cpu()), far_dx = empty(input(s), result, Device::cuda());
        cpu::avg_pool_backward(dy, s, padded, dx);
        cuda::avg_pool_backward(dy.to(Device::cuda()), s, padded, far_dx);
        EXPECT_TRUE(same(far_dx, dx)) << name(dtype) << padded;
      }
  });
}

TEST_F(CudaPool, ComputesPixelSums) {
  for (const Shape& shape :
       {Shape{2, 37, 5, 7}, Shape{3, 16, 1, 1}, Shape{0, 4, 2, 2}, Shape{9001, 60, 1, 2}})
    for (const DType dtype : {DType::i8, DType::u8, DType::i16, DType::i32}) {
      const Tensor x = values(shape, dtype);
      Tensor sums = empty({shape[0], shape[1], 1, 1}, DType::i32, Device::cpu());
      Tensor far = empty({shape[0], shape[1], 1, 1}, DType::i32, Device::cuda());
      cpu::sum_pixels(x, sums);
      cuda::sum_pixels(x.to(Device::cuda()), far);
      EXPECT_TRUE(same(far, sums)) << name(dtype) << to_string(shape);
    }
}

TEST_F(CudaPool, HandlesImagesOfSeveralSweeps) {
  const Tensor x = test::random_values({20, 24, 33, 31}, 9).to(DType::f32);
  const auto run = [&](Device device) {
    const Variable image(x.to(device), true);
    const Variable y = ops::add(ops::max_pool2d(image, {{3, 3}, {2, 2}, {1, 1}}),
                                ops::avg_pool2d(image, {{3, 3}, {2, 2}, {1, 1}}));
    const Variable z = ops::multiply(y, ops::global_avg_pool2d(image));
    z.backward(Tensor::full(z.shape(), 0.5, DType::f32, device));
    return std::pair(z.tensor().to(Device::cpu()), image.grad().to(Device::cpu()));
  };
  const auto found = run(Device::cuda()), expected = run(Device::cpu());
  EXPECT_TRUE(bitwise_equal(found.first, expected.first));
  EXPECT_EQ(test::difference({found.second}, {expected.second}, 1e-5), "");  // a sum over pixels in f64
}

/// Pooled codes and sums and their gradients are equal bit for bit.
TEST_F(CudaPool, PoolsCodesAndSumsDirectly) {
  const Tensor x = test::random_values({3, 5, 9, 8}, 10).to(DType::f32).to(Layout::channels_last);
  for (const Format format :
       {Format(IntFormat{8}), Format(IntFormat{4, true}), Format(IntFormat{12}), Format(FloatFormat{})}) {
    const auto run = [&](Device device) {
      const auto grid = Grid::from_amax(format, {}, Tensor::scalar(1.5).to(device), "q");
      const Variable leaf(x.to(device), true);
      const Variable codes = ops::quantize(leaf, grid);
      const Variable most = ops::max_pool2d(codes, {});
      EXPECT_NE(most.quantized(), nullptr);
      const Variable mean = ops::max_pool2d(ops::avg_pool2d(codes, {}), {}),
                     all = ops::global_avg_pool2d(codes);
      const Variable y = ops::add(ops::add(ops::max_pool2d(most, {}), mean), all);
      y.backward(Tensor::full(y.shape(), 0.5, DType::f32, device));
      return std::vector<Tensor>{most.quantized()->codes.to(Device::cpu()), mean.tensor().to(Device::cpu()),
                                 all.tensor().to(Device::cpu()), leaf.grad().to(Device::cpu())};
    };
    const auto found = run(Device::cuda()), expected = run(Device::cpu());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(bitwise_equal(found[i], expected[i])) << i;
  }
}

}  // namespace
}  // namespace fq::cuda_pool_test
