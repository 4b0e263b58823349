// When the simulated device does its work, and what copies wait for.

#include <algorithm>
#include <vector>

#include "device_errors/device_errors.h"
#include "fakequant/core/backend/cuda/runtime/pinned.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/backend/transfer.h"

namespace fq::device_errors_test {
namespace {

TEST(SimulatedStreams, RunNoWorkWithoutSynchronization) {
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  const Tensor x = make_on_device(4);
  synchronize(Device::cuda());
  void* const destination = const_cast<void*>(x.raw());
  void* pinned = nullptr;
  ASSERT_EQ(cudaHostAlloc(&pinned, 16, cudaHostAllocPortable), cudaSuccess);
  auto* number = static_cast<float*>(pinned);
  *number = 7;
  (void)cudaMemcpyAsync(destination, number, 4, cudaMemcpyHostToDevice, first);
  (void)cudaEventRecord(event, first);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  const auto read = [&] {
    float got = 0;
    (void)cudaMemcpyAsync(&got, destination, 4, cudaMemcpyDeviceToHost, second);
    (void)cudaStreamSynchronize(second);
    return got;
  };
  EXPECT_EQ(read(), 1);  // the second stream does not wait
  *number = 8;           // too early: the copy has not read it
  (void)cudaStreamWaitEvent(second, event, 0);
  EXPECT_EQ(read(), 8);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  (void)cudaFreeHost(pinned);
  (void)cudaEventDestroy(event);
  (void)cudaStreamDestroy(first);
  (void)cudaStreamDestroy(second);
}

TEST(SimulatedStreams, CopySmallHostBuffersFromPageLockedMemory) {
  const auto before = simulated::pageable_copies();
  const auto waits = cuda::counts().waits;
  std::vector<Tensor> destination;
  for (float i = 0; i < 300; ++i) destination.push_back(Tensor::from({i, i + 1}).to(Device::cuda()));
  EXPECT_EQ(cuda::counts().waits, waits);
  for (float i = 0; i < 300; ++i)
    EXPECT_EQ(destination[static_cast<std::size_t>(i)].to_vector<float>(), (std::vector<float>{i, i + 1}));
  EXPECT_EQ(simulated::pageable_copies(), before);
  (void)Tensor::full({1 << 16}, 1.0).to(Device::cuda());
  EXPECT_EQ(simulated::pageable_copies(), before + 1);
}

TEST(SimulatedStreams, UploadWithoutWaitingForOtherWork) {
  const Device device = Device::cuda();
  const cudaStream_t stream = cuda::device_stream(device);
  const cuda::Event queued = cuda::make_event();
  const Tensor work = make_on_device(1 << 20);
  ASSERT_EQ(cudaEventRecord(queued.get(), stream), cudaSuccess);
  const Tensor batch = detail::upload(Tensor::full({1000}, 3.0), device);
  EXPECT_EQ(cudaEventQuery(queued.get()), cudaErrorNotReady);
  EXPECT_EQ(batch.to_vector<float>(), std::vector<float>(1000, 3.0F));
}

TEST(SimulatedStreams, StopWaitingOnACheckError) {
  struct Lost {};
  const Tensor x = make_on_device(8);
  double longest = -1;
  cuda::set_wait_check([&](double seconds) {
    longest = std::max(longest, seconds);
    throw Lost();
  });
  EXPECT_THROW(synchronize(Device::cuda()), Lost);
  EXPECT_GE(longest, 0);
  cuda::set_wait_check([&](double) {});
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(8, 1.0F));
  cuda::set_wait_check({});
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(8, 1.0F));
}

TEST(SimulatedStreams, FreeWithoutChangingTheCurrentDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  setenv("FAKEQUANT_SIMULATED_GPUS", "2", 1);
  EXPECT_EXIT(
      {
        {
          const Tensor x = Tensor::full({4}, 1.0, DType::f32, Device::cuda(1));
          (void)cudaSetDevice(0);
        }
        int now = -1;
        (void)cudaGetDevice(&now);
        std::exit(now);
      },
      testing::ExitedWithCode(0), "");
  unsetenv("FAKEQUANT_SIMULATED_GPUS");
}

}  // namespace
}  // namespace fq::device_errors_test
