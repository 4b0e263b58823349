#include <algorithm>

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/backend/capture.h"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/ops/detail/product.h"
#include "fakequant/core/ops/ops.h"
#include "fakequant/core/quantized.h"

namespace fq::cuda_work_test {
namespace {

class CudaWork : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
  void TearDown() override { cuda::count_work(false); }
};

Tensor on_cuda(const Shape& shape) { return Tensor::full(shape, 0.5, DType::f32, Device::cuda()); }

/// Work of one kernel during a call.
template <class F>
cuda::KernelWork work_of(const std::string& kernel, F&& call) {
  cuda::count_work(true);
  call();
  const auto all = cuda::counted_work();
  cuda::count_work(false);
  const auto found = std::ranges::find(all, kernel, &cuda::KernelWork::kernel);
  return found == all.end() ? cuda::KernelWork{} : *found;
}

void expect(const cuda::KernelWork& work, std::int64_t launches, std::int64_t products, std::int64_t read,
            std::int64_t written) {
  EXPECT_EQ(work.launches, launches);
  EXPECT_EQ(work.products, products);
  EXPECT_EQ(work.read, read);
  EXPECT_EQ(work.written, written);
}

TEST_F(CudaWork, AddReadsTwoTensorsAndWritesOne) {
  const Variable a(on_cuda({30, 7})), b(on_cuda({30, 7}));
  constexpr std::int64_t bytes = 30 * 7 * 4;
  expect(work_of("combine", [&] { (void)ops::add(a, b); }), 1, 0, 2 * bytes, bytes);
  expect(work_of("combine", [&] { (void)ops::add(a, a); }), 1, 0, bytes, bytes);  // one tensor
}

TEST_F(CudaWork, BroadcastAndSliceCountTheirOwnElements) {
  const Variable a(on_cuda({30, 7}).slice(0, 10)), row(on_cuda({7}));
  expect(work_of("combine", [&] { (void)ops::multiply(a, row); }), 1, 0, (70 + 7) * 4, 70 * 4);
}

TEST_F(CudaWork, MatmulReadsBothFactors) {
  const Variable a(on_cuda({3, 16, 8})), b(on_cuda({3, 8, 12}));
  expect(work_of("multiply", [&] { (void)ops::matmul(a, b); }), 0, 1, 3 * (16 * 8 + 8 * 12) * 4,
         3 * 16 * 12 * 4);
}

TEST_F(CudaWork, ConvolutionsHaveNoColumns) {
  const detail::ConvShape s{2, 16, 8, 8, 32, 3, 3, 8, 8, {1, 1}, {1, 1}};
  constexpr auto nhwc = Layout::channels_last;
  const std::int64_t weights = numel(s.w_shape()), x_size = numel(s.x_shape()), y_size = numel(s.y_shape());
  const auto zeros = [](const Shape& shape, DType dtype, Layout layout) {
    return Tensor::zeros(shape, dtype, Device::cuda(), layout);
  };
  const Tensor x = zeros(s.x_shape(), DType::u8, nhwc), w = zeros(s.w_shape(), DType::i8, Layout::row_major);
  Tensor sums = zeros(s.y_shape(), DType::i32, nhwc);
  const auto multiply = [&] {
    detail::run(x.device(), &detail::Kernels::exact_conv, s, false, detail::Codes{x.raw(), x.dtype(), 255},
                detail::Codes{w.raw(), w.dtype(), 127}, sums);
  };
  multiply();  // the first call tests the products of the device
  // The weights are permuted first.
  expect(work_of("exact_conv", multiply), 2, 0, x_size + 2 * weights, 4 * y_size + weights);

  const Tensor values = zeros(s.x_shape(), DType::bf16, nhwc), dy = zeros(s.y_shape(), DType::bf16, nhwc),
               kernels = zeros(s.w_shape(), DType::bf16, Layout::row_major);
  expect(work_of("conv_backward_data", [&] { (void)detail::conv_dx(s, dy, kernels); }), 2, 0,
         2 * y_size + 4 * weights, 4 * x_size + 2 * weights);
  // Parts of the sums, here one, are added by a second kernel.
  expect(work_of("conv_backward_weights", [&] { (void)detail::conv_dw(s, values, dy); }), 2, 0,
         2 * x_size + 2 * y_size + 4 * weights, 8 * weights);
}

TEST_F(CudaWork, LayerNormBackwardReadsItsInputsOnce) {
  const std::int64_t rows = 4, length = 24, all = rows * length * 4, row = length * 4, column = rows * 4;
  const Variable x(on_cuda({rows, length}), true), gamma(on_cuda({length}), true),
      beta(on_cuda({length}), true);
  Variable y;
  const auto normalize = [&] {
    y = ops::layer_norm(x, gamma, beta);
    (void)y.tensor();
  };
  expect(work_of("normalize_rows", normalize), 1, 0, all + 2 * row, all + 2 * column);
  // One block of one step. It writes four sums of floats for each column, which the second launch reads.
  expect(work_of("layer_norm_backward",
                 [&] {
                   y.backward(on_cuda({rows, length}));
                 }),
         2, 0, 2 * all + 2 * column + row + 4 * row, all + 4 * row + 2 * row);
}

TEST_F(CudaWork, ChangesInPlaceReadAndWrite) {
  Tensor y = on_cuda({16, 8});
  const Tensor scale = on_cuda({8});
  const auto work = work_of("scale_products", [&] {
    detail::run(y.device(), &detail::Kernels::scale_products, y, scale, Tensor());
  });
  expect(work, 1, 0, (16 * 8 + 8) * 4, 16 * 8 * 4);
}

TEST_F(CudaWork, CodesCountTheirBytes) {
  const Tensor x = on_cuda({16, 32});
  const Grid grid = Grid::from_amax(IntFormat{}, Granularity::per_tensor(),
                                    Tensor::full({}, 3.0, DType::f32, x.device()), "test");
  const auto work = work_of("quantize", [&] { (void)quantize(x, grid); });
  expect(work, 1, 0, 512 * 4 + 2 * 4, 512 + 512 / 8);
}

TEST_F(CudaWork, CopiesAndFillsAreCounted) {
  const Tensor x = on_cuda({100});
  auto work = work_of("copy_bytes", [&] { (void)x.clone(); });
  EXPECT_EQ(work.copies, 1);
  expect(work, 0, 0, 400, 400);
  work = work_of("copy_bytes", [&] { (void)x.to(Device::cpu()); });
  expect(work, 0, 0, 400, 0);
  work = work_of("fill_bytes", [&] { (void)Tensor::zeros({100}, DType::f32, x.device()); });
  EXPECT_EQ(work.copies, 1);
  expect(work, 0, 0, 0, 400);
}

TEST_F(CudaWork, CapturedWorkCountsOnce) {
  const Variable a(on_cuda({100}));
  detail::Capture capture(Device::cuda());
  const auto work = work_of("combine", [&] {
    capture.add([&] { (void)ops::add(a, a); });
    capture.launch(0);
    capture.launch(0);
  });
  expect(work, 1, 0, 400, 400);
}

TEST_F(CudaWork, NothingIsCountedUnlessAsked) {
  cuda::count_work(true);
  cuda::count_work(false);
  (void)ops::neg(Variable(on_cuda({100})));
  EXPECT_TRUE(cuda::counted_work().empty());
}

}  // namespace
}  // namespace fq::cuda_work_test
