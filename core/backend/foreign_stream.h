#pragma once

/// GPU streams of other libraries: synchronization with arrays that they read and write.
///
///     const KeptDevice kept;
///     wait_for_stream(device, theirs);  // before the library's work that reads their arrays
///     let_stream_wait(device, theirs);  // after it: before they use those arrays
///
/// The host does not wait. On the CPU both functions do nothing. For a GPU, in builds without CUDA, both
/// throw BackendError.

#include <cstdint>

#include "fakequant/core/device.h"

namespace fq::detail {

/// A cudaStream_t as a number, as `torch.cuda.Stream.cuda_stream`; 0 is CUDA's default stream. The stream
/// must belong to the device.
using ForeignStream = std::uintptr_t;

/// Makes later work of the library on the device wait for the work enqueued in the stream so far.
void wait_for_stream(Device device, ForeignStream stream);
/// Makes later work in the stream wait for the work that the library enqueued so far.
void let_stream_wait(Device device, ForeignStream stream);

/// Restores the calling thread's current CUDA device, which the library changes, at the end of the scope.
/// Does not call CUDA before the first foreign stream.
class KeptDevice {
 public:
  KeptDevice();
  ~KeptDevice();
  KeptDevice(const KeptDevice&) = delete;  // a scope

 private:
  int device_ = -1;
};

}  // namespace fq::detail
