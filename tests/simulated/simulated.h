#pragma once

/// A CUDA runtime without a GPU, for tests. It replaces libcudart in a program that is linked to it, so that
/// all code above it is the code that runs on a GPU. It has one device, `cuda:0` (FAKEQUANT_SIMULATED_GPUS
/// gives it more names). The host cannot access its memory. The host runs its kernels thread by thread, every
/// second launch from the last thread to the first. It cannot show the device's arithmetic, races, and time.
///
/// Work runs when the host, or waited-for work of another stream, waits for it, and not earlier: if a wait is
/// missing, the work has not run. (An event that is queried twice counts as completed.) Copies read
/// page-locked memory when they run, and pageable memory at once. Device memory is accessible only while work
/// runs: a host access faults. Fresh memory of up to 4 MiB, with fences (device_memory.h) of any size, is
/// filled with 0xff: NaN.

#include <cstdint>

#include <cuda_runtime_api.h>

namespace fq::simulated {

/// Limits the memory to that number of bytes; allocated blocks stay.
void set_memory(std::int64_t bytes);
/// The `calls`-th next call that may fail answers `code`; 0 for none.
void fail(cudaError_t code, int calls = 1);
/// cuBLASLt has no products of int8 from now on.
void refuse_bytes();
/// Copies from pageable memory since the process began: before each of them a GPU is waited for.
[[nodiscard]] std::int64_t pageable_copies();

}  // namespace fq::simulated
