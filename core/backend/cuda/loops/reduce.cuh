#pragma once

/// Reductions of whole arrays, by CUB. Functors are our own, marked FQ_HD and const. Temporary memory comes
/// from the library's allocator, so all calls can be captured. No call waits.
///
/// Tests without a GPU replace this file by one with the same calls that uses Thrust on the host.

#include <cub/device/device_reduce.cuh>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace loops {

/// Calls call(memory, bytes, stream) twice: first to query the bytes, then to work.
template <class Call>
void with_scratch(Device device, const Call& call) {
  const cudaStream_t stream = device_stream(device);
  std::size_t bytes = 0;
  FQ_CUDA(call(nullptr, bytes, stream));
  Storage scratch(static_cast<std::int64_t>(bytes), device);
  count_launch();
  FQ_CUDA(call(scratch.mutable_data(), bytes, stream));
}

}  // namespace loops

/// Sets *out to the reduction of `zero` and term(items[i]), 0 <= i < count, with join(a, b). The order
/// depends only on `count` and the GPU model. `items` and `out` are pointers, or iterators of Thrust.
template <class Items, class Term, class Join, class Sum, class Out>
void reduce_all(Device device, Items items, std::int64_t count, Term term, Join join, Sum zero, Out out) {
  loops::with_scratch(device, [=](void* scratch, std::size_t& bytes, cudaStream_t stream) {
    return cub::DeviceReduce::TransformReduce(scratch, bytes, items, out, count, join, term, zero, stream);
  });
}

/// Reduces term(i) for 0 <= i < count.
template <class Term, class Join, class Sum, class Out>
void reduce_indices(Device device, std::int64_t count, Term term, Join join, Sum zero, Out out) {
  reduce_all(device, thrust::counting_iterator<std::int64_t>(0), count, term, join, zero, out);
}

}  // namespace fq::cuda
