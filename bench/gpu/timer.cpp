#include "fakequant/bench/gpu/timer.h"

#include <algorithm>
#include <vector>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/storage.h"

namespace fq::bench {
namespace {

constexpr double kBatchSeconds = 0.02;

cuda::Event timed_event() {
  cuda::Event event;
  FQ_CUDA(cudaEventCreate(event.out()));
  return event;
}

class Stopwatch {
 public:
  explicit Stopwatch(Device device) : stream_(cuda::device_stream(device)) {}

  /// Seconds a call.
  [[nodiscard]] double time(const std::function<void()>& work, int calls) const {
    FQ_CUDA(cudaEventRecord(begin_.get(), stream_));
    for (int i = 0; i < calls; ++i) work();
    FQ_CUDA(cudaEventRecord(end_.get(), stream_));
    FQ_CUDA(cudaEventSynchronize(end_.get()));
    float milliseconds = 0;
    FQ_CUDA(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
    return static_cast<double>(milliseconds) * 1e-3 / calls;
  }

 private:
  cudaStream_t stream_;
  cuda::Event begin_ = timed_event(), end_ = timed_event();
};

int calls_per_batch(const Stopwatch& watch, const std::function<void()>& work) {
  (void)watch.time(work, 2);  // the first calls choose kernels and take memory
  return std::clamp(static_cast<int>(kBatchSeconds / std::max(watch.time(work, 3), 1e-7)), 1, 2000);
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

}  // namespace

Pair time_pair(Device device, const std::function<void()>& ours, const std::function<void()>& theirs,
               int rounds) {
  const Stopwatch watch(device);
  const int a = calls_per_batch(watch, ours), b = calls_per_batch(watch, theirs);
  std::vector<double> left, right;
  for (int i = 0; i < rounds; ++i) {
    left.push_back(watch.time(ours, a));
    right.push_back(watch.time(theirs, b));
    right.push_back(watch.time(theirs, b));
    left.push_back(watch.time(ours, a));
  }
  return {median(left), median(right)};
}

std::function<void()> device_copy(Device device, std::int64_t bytes) {
  auto from = Storage(bytes, device), to = Storage(bytes, device);
  cuda::fill_bytes(from.mutable_data(), 1, static_cast<std::size_t>(bytes), device);
  return [=]() mutable {
    cuda::copy_bytes(to.mutable_data(), device, from.data(), device, static_cast<std::size_t>(bytes));
  };
}

std::int64_t cache_bytes(Device device) {
  int bytes = 0;
  FQ_CUDA(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device.index));
  return bytes;
}

Setup device_setup(Device device) {
  Setup out{};
  FQ_CUDA(cudaDriverGetVersion(&out.driver));
  FQ_CUDA(cudaRuntimeGetVersion(&out.runtime));
  int kilohertz = 0;
  FQ_CUDA(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, device.index));
  out.clock_mhz = kilohertz / 1000;
  FQ_CUDA(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device.index));
  out.memory_clock_mhz = kilohertz / 1000;
  return out;
}

}  // namespace fq::bench
