#include "fakequant/core/backend/cuda/runtime/transfer.h"

#include <cstring>
#include <map>

#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/counts.h"
#include "fakequant/core/backend/cuda/runtime/device_state.h"
#include "fakequant/core/backend/cuda/runtime/pinned.h"

namespace fq::cuda {
namespace {

/// Of one thread and device.
struct Uploader {
  Stream stream;
  Event allocated = make_event();
  Pinned staging;

  Uploader() { FQ_CUDA(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking)); }

  void copy(const void* from, std::size_t bytes, void* to, cudaStream_t work) {
    if (staging.bytes() < bytes) staging = Pinned(bytes);
    std::memcpy(staging.data(), from, bytes);
    FQ_CUDA(cudaEventRecord(allocated.get(), work));
    FQ_CUDA(cudaStreamWaitEvent(stream.get(), allocated.get(), 0));
    FQ_CUDA(cudaMemcpyAsync(to, staging.data(), bytes, cudaMemcpyHostToDevice, stream.get()));
    wait(stream.get());
  }
};

}  // namespace

void upload(const void* from, std::size_t bytes, void* to, Device device) {
  thread_local std::map<int, Uploader> uploaders;
  if (bytes == 0) return;
  refuse_capture("a copy from the host");
  const cudaStream_t work = stream_of(device);
  uploaders[device.index].copy(from, bytes, to, work);
}

struct Readback::Body {
  DeviceState& state;
  std::size_t bytes;
  Pinned memory;
  Event done = make_event();

  /// Behind the values: what kernels have reported.
  [[nodiscard]] int* reported() const {
    return reinterpret_cast<int*>(memory.data() + (bytes + sizeof(int) - 1) / sizeof(int) * sizeof(int));
  }
};

Readback::Readback(const void* from, std::size_t bytes, Device device) {
  refuse_capture("a copy to the host");
  const cudaStream_t stream = stream_of(device);
  body_ = std::make_unique<Body>(Body{state_of(device), bytes, Pinned(bytes + 2 * sizeof(int))});
  FQ_CUDA(cudaMemcpyAsync(body_->memory.data(), from, bytes, cudaMemcpyDeviceToHost, stream));
  body_->state.read_alarm(body_->reported());
  FQ_CUDA(cudaEventRecord(body_->done.get(), stream));
}

Readback::~Readback() {
  if (body_ == nullptr) return;
  count_wait();
  static_cast<void>(cudaEventSynchronize(body_->done.get()));  // the memory goes to somebody else
}
Readback::Readback(Readback&&) noexcept = default;
Readback& Readback::operator=(Readback&&) noexcept = default;

void Readback::get(void* to) {
  count_wait();
  FQ_CUDA(cudaEventSynchronize(body_->done.get()));
  body_->state.raise(*body_->reported());
  std::memcpy(to, body_->memory.data(), body_->bytes);
}

}  // namespace fq::cuda
