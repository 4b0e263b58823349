#pragma once

/// The library's reductions by CUB, for the simulated device: by Thrust on the host, in one thread, or with
/// FAKEQUANT_SIMULATED_FENCES=1 in several. Faults of a functor, and results that depend on the order,
/// depends on, shows in both.

#include <cstdlib>

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>
#include <thrust/system/cpp/execution_policy.h>
#include <thrust/system/omp/execution_policy.h>
#include <thrust/transform_reduce.h>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/backend/cuda/runtime/runtime.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/storage.h"
#include "simulated/launch.h"

namespace fq::cuda {
namespace loops {

/// work(policy) in the stream.
template <class Work>
void enqueue_work(Device device, Work work) {
  count_launch();
  FQ_CUDA(simulated::launch(device_stream(device), [work](simulated::Order) {
    static const bool several = std::getenv("FAKEQUANT_SIMULATED_FENCES") != nullptr;
    several ? work(thrust::omp::par) : work(thrust::cpp::par);
  }));
}

}  // namespace loops

template <class Items, class Term, class Join, class Sum, class Out>
void reduce_all(Device device, Items items, std::int64_t count, Term term, Join join, Sum zero, Out out) {
  loops::enqueue_work(device, [=](const auto& policy) {
    Out place = out;
    *place = thrust::transform_reduce(policy, items, items + count, term, zero, join);
  });
}

template <class Term, class Join, class Sum, class Out>
void reduce_indices(Device device, std::int64_t count, Term term, Join join, Sum zero, Out out) {
  reduce_all(device, thrust::counting_iterator<std::int64_t>(0), count, term, join, zero, out);
}

}  // namespace fq::cuda
