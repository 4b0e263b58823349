#include "fakequant/core/backend/capture.h"

#include <gtest/gtest.h>

#include "cuda_device.h"
#include "fakequant/core/device.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/random.h"

namespace fq::cuda_capture_test {
namespace {

using detail::CannotCapture, detail::Capture;

class CudaCapture : public testing::Test {
 protected:
  void SetUp() override { FQ_NEEDS_CUDA(); }
};

Tensor numbers(std::int64_t count, double scale = 1) {
  Tensor x = Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i)
    x.mutable_data<float>()[i] = static_cast<float>(scale * static_cast<double>(i % 13 - 6));
  return x;
}
Tensor to_cuda(const Tensor& x) { return x.to(Device::cuda()); }
Tensor twice(const Tensor& x) { return ops::add(Variable(x), Variable(x)).tensor(); }

TEST_F(CudaCapture, ComputesNothingBeforeLaunch) {
  Tensor x = to_cuda(numbers(1000)), y = Tensor::zeros({1000}, DType::f32, Device::cuda());
  Capture capture(Device::cuda());
  capture.add([&] { y.copy_from(twice(x)); });
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(1000));
  capture.launch(0);
  EXPECT_EQ(y.to_vector<float>(), numbers(1000, 2).to_vector<float>());
}

TEST_F(CudaCapture, EachLaunchReadsTheCurrentValues) {
  Tensor x = to_cuda(numbers(777)), y, z;
  Capture capture(Device::cuda());
  capture.add([&] { y = twice(x); });
  capture.add([&] { z = twice(twice(y)); });
  for (const double scale : {1.0, -3.0, 0.5}) {
    x.copy_from(numbers(777, scale));
    capture.launch(0);
    capture.launch(1);
    EXPECT_EQ(y.to_vector<float>(), numbers(777, 2 * scale).to_vector<float>()) << scale;
    EXPECT_EQ(z.to_vector<float>(), numbers(777, 8 * scale).to_vector<float>()) << scale;
  }
}

TEST_F(CudaCapture, LaunchesBumpVersionsOfWrittenTensors) {
  const Tensor x = to_cuda(numbers(64));
  Tensor y = Tensor::zeros({64}, DType::f32, Device::cuda());
  Capture capture(Device::cuda());
  capture.add([&] { y.copy_from(twice(x)); });
  const auto read = x.version(), written = y.version();
  capture.launch(0);
  EXPECT_EQ(x.version(), read);
  EXPECT_NE(y.version(), written);
}

TEST_F(CudaCapture, KeepsItsInputsAlive) {
  Tensor y;
  Capture capture(Device::cuda());
  {
    const Tensor x = to_cuda(numbers(500));
    capture.add([&] { y = twice(x); });
  }
  std::vector<Tensor> others;  // would get the memory of x
  for (int i = 0; i < 4; ++i) others.push_back(Tensor::full({500}, 7, DType::f32, Device::cuda()));
  capture.launch(0);
  EXPECT_EQ(y.to_vector<float>(), numbers(500, 2).to_vector<float>());
}

TEST_F(CudaCapture, ReusesMemoryWithinAPart) {
  const Tensor x = to_cuda(numbers(std::int64_t{1} << 20));  // 4 MiB
  const auto before = memory_stats(Device::cuda()).in_use;
  Tensor y;
  {
    Capture capture(Device::cuda());
    capture.add([&] {
      y = twice(x);
      for (int i = 0; i < 20; ++i) y = ops::relu(Variable(y)).tensor();
    });
    EXPECT_LE(memory_stats(Device::cuda()).in_use - before, 17 << 20);
    capture.launch(0);
  }
  EXPECT_EQ(y.slice(0, 13).to_vector<float>(),
            (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 2, 4, 6, 8, 10, 12}));  // outlives the capture
  y = {};
  EXPECT_EQ(memory_stats(Device::cuda()).in_use, before);
}

TEST_F(CudaCapture, RetainedTensorsKeepOnlyTheirMemory) {
  const auto before = memory_stats(Device::cuda()).in_use;
  const Tensor x = to_cuda(numbers(std::int64_t{1} << 22));  // 16 MiB
  Tensor small;
  {
    Capture capture(Device::cuda());
    capture.add([&] {
      small = twice(x.slice(0, 100));
      (void)twice(twice(x));
    });
    capture.launch(0);
  }
  EXPECT_EQ(memory_stats(Device::cuda()).in_use - before, (16 << 20) + (8 << 20));
  EXPECT_EQ(small.to_vector<float>(), numbers(100, 2).to_vector<float>());
}

TEST_F(CudaCapture, CapturesProducts) {
  Tensor x = to_cuda(numbers(6 * 8).reshape({6, 8}));
  const Tensor w = to_cuda(numbers(5 * 8, 0.25).reshape({5, 8}));
  const auto product = [&] { return ops::linear(Variable(x), Variable(w)).tensor(); };
  const auto right = product().to_vector<float>();
  Capture capture(Device::cuda());
  Tensor y;
  capture.add([&] { y = product(); });
  capture.launch(0);
  EXPECT_EQ(y.to_vector<float>(), right);
}

TEST_F(CudaCapture, BuildsOperatorTablesBeforeCapture) {
  const Tensor q = to_cuda(numbers(2 * 2 * 6 * 8)).reshape({2, 2, 6, 8});
  const auto step = [&] {
    const Variable rotated = ops::rotary(Variable(q), {.dims = 8});
    return ops::attention_weights(ops::matmul(rotated, rotated, true), {.causal = true}).tensor();
  };
  Capture capture(Device::cuda());
  Tensor y;
  capture.add([&] { y = step(); });
  capture.launch(0);
  EXPECT_EQ(y.to_vector<float>(), step().to_vector<float>());
}

TEST_F(CudaCapture, DropoutUsesTheStepOfTheLaunch) {
  const Tensor x = Tensor::full({4096}, 1, DType::f32, Device::cuda());
  const auto drop = [&] { return ops::dropout(Variable(x), 0.5, true).tensor(); };
  Capture capture(Device::cuda());
  Tensor y;
  {
    const RandomScope scope(9, 0);
    capture.add([&] { y = drop(); });
  }
  for (const std::uint64_t step : {5u, 6u, (1u << 31) + 7}) {
    const RandomScope scope(9, step);
    const auto right = drop().to_vector<float>();
    const RandomScope again(9, step);
    capture.launch(0);
    EXPECT_EQ(y.to_vector<float>(), right) << step;
  }
}

TEST_F(CudaCapture, RejectsSynchronizationAndContinues) {
  const Tensor x = to_cuda(numbers(64));
  Capture capture(Device::cuda());
  EXPECT_THROW(capture.add([&] { (void)x.to(Device::cpu()); }), CannotCapture);
  EXPECT_THROW(capture.add([&] { (void)to_cuda(numbers(3)); }), CannotCapture);
  EXPECT_THROW(capture.add([&] { synchronize(Device::cuda()); }), CannotCapture);
  EXPECT_THROW(capture.add([&] { throw ArgumentError("its own"); }), ArgumentError);
  EXPECT_EQ(twice(x).to_vector<float>(), numbers(64, 2).to_vector<float>());
  Tensor y;
  capture.add([&] { y = twice(x); });
  capture.launch(0);
  EXPECT_EQ(y.to_vector<float>(), numbers(64, 2).to_vector<float>());
}

TEST(Capture, RequiresAGpu) {
  const auto make = [](Device device) { const Capture capture(device); };
  if (cuda_device_count() == 0) {
    EXPECT_THROW(make(Device::cuda()), BackendError);
  }
  EXPECT_THROW(make(Device::cpu()), BackendError);
}

}  // namespace
}  // namespace fq::cuda_capture_test
