#include "fakequant/core/backend/foreign_stream.h"

#include <atomic>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/pinned.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"

namespace fq::detail {
namespace {

// Set by callers with streams of their own (PyTorch). Only such callers need their current device restored.
std::atomic<bool> was_foreign_stream = false;

// The event is destroyed at once: CUDA releases it when the recorded work is done.
void put_in_order(cudaStream_t first, cudaStream_t then) {
  const cuda::Event done = cuda::make_event();
  FQ_CUDA(cudaEventRecord(done.get(), first));
  FQ_CUDA(cudaStreamWaitEvent(then, done.get(), 0));
}

}  // namespace

void wait_for_stream(Device device, ForeignStream stream) {
  if (!device.is_cuda()) return;
  was_foreign_stream = true;
  const KeptDevice kept;
  const cudaStream_t own = cuda::device_stream(device);
  put_in_order(reinterpret_cast<cudaStream_t>(stream), own);
}

void let_stream_wait(Device device, ForeignStream stream) {
  if (!device.is_cuda()) return;
  const KeptDevice kept;
  const cudaStream_t own = cuda::device_stream(device);
  put_in_order(own, reinterpret_cast<cudaStream_t>(stream));
}

KeptDevice::KeptDevice() {
  if (was_foreign_stream) FQ_CUDA(cudaGetDevice(&device_));
}
KeptDevice::~KeptDevice() {
  if (device_ >= 0) static_cast<void>(cudaSetDevice(device_));
}

}  // namespace fq::detail
