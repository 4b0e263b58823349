#pragma once

/// The host/device macro: functions marked FQ_HD compile for the host and, under nvcc, for the device too.

#if defined(__CUDACC__)
#define FQ_HD __host__ __device__ __forceinline__
#else
#define FQ_HD inline
#endif
