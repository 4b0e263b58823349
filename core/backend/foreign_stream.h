#pragma once

/// Streams of a GPU that are not the library's own: arrays of others are written and read in theirs.
///
///     const KeptDevice kept;
///     wait_for_stream(device, theirs);  // before the library's work that reads their arrays
///     let_stream_wait(device, theirs);  // after it: before they read what it made, or write to what it read
///
/// The host waits for nothing. On the CPU neither does anything; for a GPU in builds without CUDA both throw
/// BackendError.

#include <cstdint>

#include "fakequant/core/device.h"

namespace fq::detail {

/// A cudaStream_t as a number, as `torch.cuda.Stream.cuda_stream` is; 0 is CUDA's default stream. It must be
/// one of that device.
using ForeignStream = std::uintptr_t;

/// The library's further work on the device begins after what the stream has been given so far.
void wait_for_stream(Device device, ForeignStream stream);
/// The stream's further work begins after what the library has been given so far.
void let_stream_wait(Device device, ForeignStream stream);

/// The calling thread's current device of CUDA, which the library's work changes, is at the end what it was
/// at first. Nothing is asked of CUDA before there was a foreign stream.
class KeptDevice {
 public:
  KeptDevice();
  ~KeptDevice();
  KeptDevice(const KeptDevice&) = delete;  // a scope

 private:
  int device_ = -1;
};

}  // namespace fq::detail
