#pragma once

/// All that belongs to one GPU. CUDA builds only.

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/detail/allocator.h"

namespace fq::cuda {

class DeviceState {
 public:
  explicit DeviceState(int index);

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }
  [[nodiscard]] int processors() const noexcept { return processors_; }

  [[nodiscard]] Alarm alarm(const std::string& text);
  /// Waits, and throws what has been reported.
  void synchronize();
  /// Copies what kernels have reported so far to page-locked memory, in the stream.
  void read_alarm(int* to);
  /// Throws NumericError for what such a copy holds, if anything, and takes it back.
  void raise(int reported);

  /// Memory of the pool, in the stream's order.
  [[nodiscard]] void* take(std::size_t bytes);
  void give(void* pointer, std::size_t bytes) noexcept;
  [[nodiscard]] MemoryStats stats() noexcept;
  void reset_peak() noexcept;
  void trim() noexcept;

 private:
  void count(std::int64_t bytes) noexcept;

  static constexpr int none = 0x7f7f7f7f;  // what cudaMemset writes into the flag

  int index_, processors_ = 1;
  Stream stream_;
  cudaMemPool_t pool_ = nullptr;  // the device's own
  int* flag_ = nullptr;           // on the device, for as long as the process lives
  std::mutex mutex_;
  std::map<std::string, int> alarms_;
  std::vector<std::string> texts_;
  MemoryStats stats_;
};

/// Made when first asked for, kept until the process ends: tensors with static lifetime may outlive any other
/// static object. Throws BackendError for a device that is not there.
[[nodiscard]] DeviceState& state_of(Device device);

}  // namespace fq::cuda
