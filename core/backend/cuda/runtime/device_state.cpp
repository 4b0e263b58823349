#include "fakequant/core/backend/cuda/runtime/device_state.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/detail/check.h"

namespace fq::cuda {

DeviceState::DeviceState(int index) : index_(index) {
  FQ_CUDA(cudaSetDevice(index));
  FQ_CUDA(cudaStreamCreateWithFlags(stream_.out(), cudaStreamNonBlocking));
  FQ_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, index));
  FQ_CUDA(cudaDeviceGetDefaultMemPool(&pool_, index));
  auto keep =
      std::numeric_limits<std::uint64_t>::max();  // free blocks stay: a step asks nothing of the driver
  FQ_CUDA(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
  void* flag = nullptr;
  FQ_CUDA(cudaMallocAsync(&flag, sizeof(int), stream_.get()));
  FQ_CUDA(cudaMemsetAsync(flag, 0x7f, sizeof(int), stream_.get()));
  flag_ = static_cast<int*>(flag);
}

Alarm DeviceState::alarm(const std::string& text) {
  const std::scoped_lock lock(mutex_);
  const auto [entry, added] = alarms_.try_emplace(text, static_cast<int>(texts_.size()));
  if (added) texts_.push_back(text);
  return {flag_, entry->second};
}

void DeviceState::read_alarm(int* to) {
  FQ_CUDA(cudaMemcpyAsync(to, flag_, sizeof(int), cudaMemcpyDeviceToHost, stream_.get()));
}

void DeviceState::raise(int reported) {
  if (reported == none) return;
  FQ_CUDA(cudaMemsetAsync(flag_, 0x7f, sizeof(int), stream_.get()));
  const std::scoped_lock lock(mutex_);
  throw NumericError(texts_.at(static_cast<std::size_t>(reported)));
}

void DeviceState::synchronize() {
  int reported = none;
  read_alarm(&reported);
  FQ_CUDA(cudaStreamSynchronize(stream_.get()));
  raise(reported);
}

void* DeviceState::take(std::size_t bytes) {
  void* pointer = nullptr;
  FQ_CUDA(cudaSetDevice(index_));
  FQ_CUDA(cudaMallocAsync(&pointer, bytes == 0 ? 1 : bytes, stream_.get()));
  count(static_cast<std::int64_t>(bytes));
  return pointer;
}

void DeviceState::give(void* pointer, std::size_t bytes) noexcept {
  static_cast<void>(cudaFreeAsync(pointer, stream_.get()));
  count(-static_cast<std::int64_t>(bytes));
}

void DeviceState::count(std::int64_t bytes) noexcept {
  const std::scoped_lock lock(mutex_);
  stats_.in_use += bytes;
  stats_.peak = std::max(stats_.peak, stats_.in_use);
}

MemoryStats DeviceState::stats() noexcept {
  const std::scoped_lock lock(mutex_);
  MemoryStats out = stats_;
  std::uint64_t reserved = 0;
  if (cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess)
    out.reserved = static_cast<std::int64_t>(reserved);
  return out;
}

void DeviceState::reset_peak() noexcept {
  const std::scoped_lock lock(mutex_);
  stats_.peak = stats_.in_use;
}

void DeviceState::trim() noexcept { static_cast<void>(cudaMemPoolTrimTo(pool_, 0)); }

DeviceState& state_of(Device device) {
  constexpr int most = 64;
  static std::mutex mutex;
  static auto* states = new std::array<std::unique_ptr<DeviceState>, most>;
  const std::scoped_lock lock(mutex);
  const int count = device_count();
  if (device.index < 0 || device.index >= std::min(count, most))
    throw BackendError(
        fmt::format("[cuda] {} is not there: {}", to_string(device),
                    count == 0 ? why_unusable() : fmt::format("use cuda:0 to cuda:{}", count - 1)));
  auto& state = (*states)[static_cast<std::size_t>(device.index)];
  if (!state) state = std::make_unique<DeviceState>(device.index);
  return *state;
}

}  // namespace fq::cuda
