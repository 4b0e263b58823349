#pragma once

/// A CUDA runtime without a GPU, for tests: one device, `cuda:0` (FAKEQUANT_SIMULATED_GPUS: it has more
/// names), whose memory the host cannot touch and whose kernels the host runs thread by thread, every second
/// launch from the last one to the first. It takes the place of libcudart in a program that it is linked to,
/// so that all code above it equals that of a GPU. It cannot show the device's arithmetic,
/// races, and time.
///
/// Work runs when it is waited for, by the host or by work of another stream that is, and no sooner: where a
/// wait is missing, it has not run. (An event that is queried twice has happened.) Copies from
/// page-locked memory read it then; pageable memory is copied at once. The memory is mapped
/// without access but while work runs: a host access faults. Fresh memory of up to 4 MiB, with fences
/// (device_memory.h) all of it, is filled with 0xff: NaN.

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
