#pragma once

/// Reductions of whole arrays, by CUB. Functors are ours, marked FQ_HD and const; memory that is
/// needed meanwhile is the library's own, so that all of it can be captured. Nothing waits.
///
/// Tests that have no GPU take another file in this one's place: the same calls, by Thrust on the host.

#include <cub/device/device_reduce.cuh>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace loops {

/// call(memory, bytes, stream), first asked for the bytes, then to work.
template <class Call>
void with_scratch(Device device, const Call& call) {
  const cudaStream_t stream = stream_of(device);
  std::size_t bytes = 0;
  FQ_CUDA(call(nullptr, bytes, stream));
  Storage scratch(static_cast<std::int64_t>(bytes), device);
  count_launch();
  FQ_CUDA(call(scratch.mutable_data(), bytes, stream));
}

}  // namespace loops

/// *out = what join(a, b) makes of `zero` and term(items[i]), 0 <= i < count, joined in an order that depends
/// on `count` and the GPU's model alone. `items` and `out` are pointers, or iterators of Thrust.
template <class Items, class Term, class Join, class Sum, class Out>
void reduce_all(Device device, Items items, std::int64_t count, Term term, Join join, Sum zero, Out out) {
  loops::with_scratch(device, [=](void* scratch, std::size_t& bytes, cudaStream_t stream) {
    return cub::DeviceReduce::TransformReduce(scratch, bytes, items, out, count, join, term, zero, stream);
  });
}

/// The same of term(i).
template <class Term, class Join, class Sum, class Out>
void reduce_indices(Device device, std::int64_t count, Term term, Join join, Sum zero, Out out) {
  reduce_all(device, thrust::counting_iterator<std::int64_t>(0), count, term, join, zero, out);
}

}  // namespace fq::cuda
