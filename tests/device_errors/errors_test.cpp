// Errors of the library for failures of a GPU. The simulated device fails on request.

#include "device_errors/device_errors.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/linear.h"

namespace fq::device_errors_test {
namespace {

using testing::HasSubstr;

TEST(DeviceErrors, ReportsTooLittleMemory) {
  const Tensor first = make_on_device(1000);
  simulated::set_memory(std::int64_t{1} << 20);
  const auto message = error_message<SystemError>([] { (void)make_on_device(std::int64_t{1} << 20); });
  EXPECT_THAT(message, HasSubstr("cudaMallocFromPoolAsync"));
  EXPECT_THAT(message, HasSubstr("cudaErrorMemoryAllocation"));
  EXPECT_THAT(message, HasSubstr("at core/backend/cuda/runtime/device_state.cpp:"));
  EXPECT_THAT(message, HasSubstr("use a smaller batch"));
  simulated::set_memory(std::int64_t{1} << 33);
  EXPECT_EQ(make_on_device(std::int64_t{1} << 20).slice(0, 1).item(), 1.0);  // the device still works
  EXPECT_EQ(first.slice(0, 1).item(), 1.0);
}

TEST(DeviceErrors, ReportsAFailingKernel) {
  const Tensor x = make_on_device(64);
  simulated::fail(cudaErrorLaunchFailure, 3);  // set device, memory for y, launch
  const auto message = error_message<BackendError>([&] { (void)x.to(DType::f64); });
  EXPECT_THAT(message, HasSubstr("cudaErrorLaunchFailure"));
  EXPECT_THAT(message, HasSubstr("the GPU is lost to this process"));
}

TEST(DeviceErrors, ReportsAFailingSynchronization) {
  const Tensor x = make_on_device(64);
  for (int calls = 1; calls <= 3; ++calls) {
    simulated::fail(cudaErrorIllegalAddress, calls);
    EXPECT_THAT(error_message<BackendError>([&] { (void)x.to(Device::cpu()); }),
                HasSubstr("lost to this process"))
        << calls;
  }
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(64, 1.0f));
}

TEST(DeviceErrors, IgnoresAFailingFree) {
  Tensor x = make_on_device(64);
  simulated::fail(cudaErrorLaunchFailure);
  x = {};
  EXPECT_EQ(make_on_device(2).slice(1, 2).item(), 1.0);
}

TEST(DeviceErrors, ReportsAnOutdatedDriver) {
  run_in_fresh_process(cudaErrorInsufficientDriver, [] {
    EXPECT_EQ(cuda_device_count(), 0);
    EXPECT_EQ(Device::parse("auto"), Device::cpu());
    const auto message = error_message<BackendError>([] { (void)make_on_device(1); });
    EXPECT_THAT(message, HasSubstr("cuda:0 is not there"));
    EXPECT_THAT(message, HasSubstr("the driver supports CUDA 11.4, this program needs CUDA"));
    EXPECT_THAT(message, HasSubstr("--device cpu"));
  });
}

TEST(DeviceErrors, ReportsABusyDevice) {
  run_in_fresh_process(cudaErrorDevicesUnavailable, [] {
    EXPECT_EQ(cuda_device_count(), 0);
    EXPECT_THAT(error_message<BackendError>([] { (void)make_on_device(1); }),
                HasSubstr("another program uses the GPU"));
  });
}

TEST(DeviceErrors, ReportsAMissingDevice) {
  EXPECT_THAT(error_message<BackendError>([] { (void)Tensor::empty({1}, DType::f32, Device::cuda(5)); }),
              HasSubstr("cuda:5 is not there: use cuda:0 to cuda:0"));
}

TEST(DeviceErrors, RejectsInputsOnTwoDevices) {
  const Variable x(Tensor::full({2, 3}, 1.0)), w(Tensor::full({4, 3}, 1.0, DType::f32, Device::cuda()));
  EXPECT_THAT(error_message<ArgumentError>([&] { (void)ops::linear(x, w, {}); }),
              HasSubstr("use both on one device"));
}

TEST(DeviceErrors, SynchronizesOnlyForReads) {
  const Tensor x = make_on_device(4096);
  const auto before = cuda::counts();
  const Tensor y = x.to(DType::f64).clone().to(DType::f32).reshape({4, 4, 16, 16}).to(Layout::channels_last);
  EXPECT_EQ(cuda::counts().waits, before.waits);
  EXPECT_GT(cuda::counts().launches, before.launches);
  (void)y.slice(0, 1).to_vector<float>();
  EXPECT_EQ(cuda::counts().waits, before.waits + 1);
}

}  // namespace
}  // namespace fq::device_errors_test
