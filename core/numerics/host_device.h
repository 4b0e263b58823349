#pragma once

/// The host/device macro: functions marked FQ_HD compile for the host and, under nvcc, for the device too.
/// FQ_BY_TARGET(gpu, host) is the first in the code that a GPU runs: one instruction for what the host needs
/// several for.

#if defined(__CUDACC__)
#define FQ_HD __host__ __device__ __forceinline__
#else
#define FQ_HD inline
#endif

#if defined(__CUDA_ARCH__)
#define FQ_BY_TARGET(gpu, host) gpu
#else
#define FQ_BY_TARGET(gpu, host) host
#endif
