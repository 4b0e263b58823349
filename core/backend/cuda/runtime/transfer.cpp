#include "fakequant/core/backend/cuda/runtime/transfer.h"

#include <cstring>
#include <map>

#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/device_state.h"
#include "fakequant/core/backend/cuda/runtime/pinned.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/work.h"
#include "fakequant/core/context.h"

namespace fq::cuda {
namespace {

/// Upload state of one thread and device.
// One per loader thread: its copies run next to the training step of another thread.
struct Uploader {
  Stream stream;
  Pinned staging;

  Uploader() { FQ_CUDA(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking)); }
};

thread_local std::map<int, Uploader> uploaders;
thread_local const Uploader* uploading = nullptr;  // set while memory for an upload is allocated
thread_local Device uploading_to;

}  // namespace

cudaStream_t upload_stream(Device device) noexcept {
  return uploading != nullptr && uploading_to == device ? uploading->stream.get() : nullptr;
}

// The host tensor is pageable, so it is copied to page-locked memory first.
Tensor upload(const Tensor& host, Device device) {
  refuse_capture("a copy from the host");
  static_cast<void>(device_stream(device));  // makes it the current device
  Uploader& own = uploaders[device.index];
  // Memory from the device's stream would be available only after the earlier work is done.
  const Tensor out = [&] {
    const ScopedValue<const Uploader*> allocating(uploading, &own);
    const ScopedValue<Device> there(uploading_to, device);
    return Tensor::empty(host.shape(), host.dtype(), device, host.layout());
  }();
  const auto bytes = static_cast<std::size_t>(host.nbytes());
  if (bytes == 0) return out;
  if (own.staging.bytes() < bytes) own.staging = Pinned(bytes);
  std::memcpy(own.staging.data(), host.raw(), bytes);
  Tensor target = out;
  FQ_CUDA(cudaMemcpyAsync(target.mutable_raw(), own.staging.data(), bytes, cudaMemcpyHostToDevice,
                          own.stream.get()));
  wait(own.stream.get());
  return out;
}

struct Readback::Body {
  DeviceState& state;
  std::size_t bytes;
  Pinned memory;
  Event done = make_event();

  /// Returns the error report of the kernels, stored after the values.
  [[nodiscard]] int* reported() const {
    return reinterpret_cast<int*>(memory.data() + (bytes + sizeof(int) - 1) / sizeof(int) * sizeof(int));
  }
};

// Values and alarm are copied together in the stream, so `get` reports errors of all work before the copy.
Readback::Readback(const void* from, std::size_t bytes, Device device) {
  refuse_capture("a copy to the host");
  const cudaStream_t stream = device_stream(device);
  body_ = std::make_unique<Body>(Body{device_state(device), bytes, Pinned(bytes + 2 * sizeof(int))});
  note_read(from, static_cast<std::int64_t>(bytes));
  note_work(WorkKind::copy);
  FQ_CUDA(cudaMemcpyAsync(body_->memory.data(), from, bytes, cudaMemcpyDeviceToHost, stream));
  body_->state.read_alarm(body_->reported());
  FQ_CUDA(cudaEventRecord(body_->done.get(), stream));
}

Readback::~Readback() {
  if (body_ == nullptr) return;
  count_wait();
  static_cast<void>(cudaEventSynchronize(body_->done.get()));  // the memory will be reused
}
Readback::Readback(Readback&&) noexcept = default;
Readback& Readback::operator=(Readback&&) noexcept = default;

void Readback::get(void* to) {
  wait(body_->done.get());
  body_->state.raise(*body_->reported());
  std::memcpy(to, body_->memory.data(), body_->bytes);
}

}  // namespace fq::cuda
