#pragma once

/// A CUDA runtime without a GPU, for tests: one device, `cuda:0`, whose memory the host cannot touch and
/// whose kernels the host runs thread by thread, every second launch from the last one to the first. It takes
/// the place of libcudart in a program that it is linked to, so that everything above it is what runs on a
/// GPU. What it cannot show: the device's own arithmetic, races, and time.
///
/// The memory is mapped without access but while a kernel or a copy runs: a host access faults. Copies to the
/// host arrive when the stream is waited for, not before. Fresh memory of up to 4 MiB, with fences
/// (device_memory.h) all of it, is filled with 0xff: NaN.

#include <cstdint>

#include <cuda_runtime_api.h>

#include "simulated/counts.h"

namespace fq::simulated {

/// So many bytes and no more from now on; what is in use stays.
void set_memory(std::int64_t bytes);
/// The `calls`-th next call that may fail answers `code`; 0 for none.
void fail(cudaError_t code, int calls = 1);

}  // namespace fq::simulated
