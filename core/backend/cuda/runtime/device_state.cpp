#include "fakequant/core/backend/cuda/runtime/device_state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/detail/check.h"

namespace fq::cuda {
namespace {

/// Makes a device current on this thread within a scope. Destructors and callers that work on another device
/// use it to free memory and to reset alarms.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index) noexcept {
    if (cudaGetDevice(&before_) != cudaSuccess || before_ == index) before_ = -1;
    if (before_ >= 0) static_cast<void>(cudaSetDevice(index));
  }
  ~CurrentDevice() {
    if (before_ >= 0) static_cast<void>(cudaSetDevice(before_));
  }
  CurrentDevice(const CurrentDevice&) = delete;  // scope guard

 private:
  int before_ = -1;
};

MemoryPool make_pool(int index) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = index};
  MemoryPool pool;
  FQ_CUDA(cudaMemPoolCreate(pool.out(), &properties));
  // Keeps all free blocks, so that a training step never calls the driver for memory.
  auto keep = std::numeric_limits<std::uint64_t>::max();
  FQ_CUDA(cudaMemPoolSetAttribute(pool.get(), cudaMemPoolAttrReleaseThreshold, &keep));
  return pool;
}

}  // namespace

DeviceState::DeviceState(int index) : index_(index) {
  FQ_CUDA(cudaSetDevice(index));
  // Non-blocking: work in CUDA's default stream, for example of other libraries, does not order this stream.
  FQ_CUDA(cudaStreamCreateWithFlags(stream_.out(), cudaStreamNonBlocking));
  FQ_CUDA(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, index));
  pool_ = make_pool(index);
  upload_pool_ = make_pool(index);
  int never = 0;  // never wait for memory that is still being read
  FQ_CUDA(cudaMemPoolSetAttribute(upload_pool_.get(), cudaMemPoolReuseAllowInternalDependencies, &never));
  void* flag = nullptr;
  FQ_CUDA(cudaMallocFromPoolAsync(&flag, sizeof(int), pool_.get(), stream_.get()));
  // Each byte 0x7f: larger than every alarm id, so atomicMin keeps the smallest id that is raised.
  FQ_CUDA(cudaMemsetAsync(flag, 0x7f, sizeof(int), stream_.get()));
  flag_ = static_cast<int*>(flag);
}

Alarm DeviceState::alarm(const std::string& text, AlarmKind kind) {
  const std::scoped_lock lock(mutex_);
  // Each text has one id for the life of the process, because kernels of graphs refer to ids.
  const auto [entry, added] = alarms_.try_emplace(text, static_cast<int>(texts_.size()));
  if (added) texts_.emplace_back(text, kind);
  return {flag_, entry->second};
}

void DeviceState::read_alarm(int* to) {
  FQ_CUDA(cudaMemcpyAsync(to, flag_, sizeof(int), cudaMemcpyDeviceToHost, stream_.get()));
}

void DeviceState::raise(int reported) {
  if (reported == none) return;
  const CurrentDevice own(index_);
  FQ_CUDA(cudaMemsetAsync(flag_, 0x7f, sizeof(int), stream_.get()));
  const std::scoped_lock lock(mutex_);
  const auto& [text, kind] = texts_.at(static_cast<std::size_t>(reported));
  if (kind == AlarmKind::argument) throw ArgumentError(text);
  throw NumericError(text);
}

void DeviceState::synchronize() {
  int reported = none;
  read_alarm(&reported);
  wait(stream_.get());
  raise(reported);
}

void DeviceState::copy_staged(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t most = 256;  // copies in flight
  const std::scoped_lock lock(staged_mutex_);
  // Waiting for the oldest copy bounds the page-locked memory in use.
  if (staged_.size() >= most) {
    wait(staged_.front().done.get());
  }
  while (!staged_.empty() && cudaEventQuery(staged_.front().done.get()) == cudaSuccess) staged_.pop_front();
  static_cast<void>(cudaGetLastError());  // clears the "not ready" error of the query
  Staged& own = staged_.emplace_back(Pinned(bytes), make_event());
  std::memcpy(own.memory.data(), from, bytes);
  FQ_CUDA(cudaMemcpyAsync(to, own.memory.data(), bytes, cudaMemcpyHostToDevice, stream_.get()));
  FQ_CUDA(cudaEventRecord(own.done.get(), stream_.get()));
}

void* DeviceState::take(std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  void* pointer = nullptr;
  FQ_CUDA(cudaSetDevice(index_));
  // Stream-ordered: memory freed by earlier work of the stream is reused without a wait of the host.
  FQ_CUDA(cudaMallocFromPoolAsync(&pointer, bytes == 0 ? 1 : bytes, pool, stream));
  count(static_cast<std::int64_t>(bytes));
  return pointer;
}

void DeviceState::give(void* pointer, std::size_t bytes) noexcept {
  const CurrentDevice own(index_);
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
  for (const auto& pool : {pool_.get(), upload_pool_.get()}) {
    std::uint64_t reserved = 0;
    if (cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess)
      out.reserved += static_cast<std::int64_t>(reserved);
  }
  return out;
}

void DeviceState::reset_peak() noexcept {
  const std::scoped_lock lock(mutex_);
  stats_.peak = stats_.in_use;
}

void DeviceState::trim() noexcept {
  for (const auto& pool : {pool_.get(), upload_pool_.get()}) static_cast<void>(cudaMemPoolTrimTo(pool, 0));
}

DeviceState& device_state(Device device) {
  static std::mutex mutex;
  // Never destroyed: tensors with static lifetime free their memory at exit.
  static auto* states = new std::array<std::unique_ptr<DeviceState>, max_devices>;
  const std::scoped_lock lock(mutex);
  const int count = device_count();
  if (device.index < 0 || device.index >= std::min(count, max_devices))
    throw BackendError(
        fmt::format("[cuda] {} is not there: {}", to_string(device),
                    count == 0 ? why_unusable() : fmt::format("use cuda:0 to cuda:{}", count - 1)));
  auto& state = (*states)[static_cast<std::size_t>(device.index)];
  if (!state) state = std::make_unique<DeviceState>(device.index);
  return *state;
}

}  // namespace fq::cuda
