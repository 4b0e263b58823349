#pragma once

/// State of one GPU. CUDA builds only.

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/backend/cuda/runtime/pinned.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/device.h"

namespace fq::cuda {

using MemoryPool = Handle<cudaMemPool_t, cudaMemPoolDestroy>;

class DeviceState {
 public:
  explicit DeviceState(int index);

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_.get(); }
  [[nodiscard]] int processors() const noexcept { return processors_; }

  [[nodiscard]] Alarm alarm(const std::string& text, AlarmKind kind);
  /// Waits, and throws reported errors.
  void synchronize();
  /// Copies the errors that kernels have reported so far to page-locked memory, in the stream.
  void read_alarm(int* to);
  /// Throws the error in the copy `reported`, if any, and resets the flag.
  void raise(int reported);

  /// Copies a few host bytes in the stream. The bytes are read before the function returns. Uses page-locked
  /// memory: with pageable memory, CUDA would wait for all work of the stream.
  void copy_staged(void* to, const void* from, std::size_t bytes);

  /// Allocates from a separate pool, in stream order. Memory of other users of the device is not affected.
  [[nodiscard]] void* take(std::size_t bytes) { return take(bytes, pool_.get(), stream_.get()); }
  /// Allocates memory for uploads in the order of their stream, from a pool that never waits for work in
  /// progress.
  [[nodiscard]] void* take_for_upload(std::size_t bytes, cudaStream_t stream) {
    return take(bytes, upload_pool_.get(), stream);
  }
  void give(void* pointer, std::size_t bytes) noexcept;
  [[nodiscard]] MemoryStats stats() noexcept;
  void reset_peak() noexcept;
  void trim() noexcept;

 private:
  struct Staged {
    Pinned memory;
    Event done;
  };
  [[nodiscard]] void* take(std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
  void count(std::int64_t bytes) noexcept;

  static constexpr int none = 0x7f7f7f7f;  // value of the flag after cudaMemset

  int index_, processors_ = 1;
  Stream stream_;
  MemoryPool pool_, upload_pool_;
  int* flag_ = nullptr;  // on the device, never freed
  std::mutex mutex_;
  std::map<std::string, int> alarms_;
  std::vector<std::pair<std::string, AlarmKind>> texts_;
  MemoryStats stats_;
  std::mutex staged_mutex_;
  std::deque<Staged> staged_;
};

/// Returns the state of a device. It is created on first use and kept until the process ends, because tensors
/// with static lifetime may outlive other static objects. Throws BackendError for a device that does not
/// exist.
[[nodiscard]] DeviceState& device_state(Device device);

}  // namespace fq::cuda
