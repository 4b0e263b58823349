#include "fakequant/core/backend/cuda/engine/algorithms.h"

#include <limits>

#include "fakequant/core/backend/cuda/runtime/check.h"
#include "fakequant/core/error.h"

namespace fq::cuda {
namespace {

cublasStatus_t destroy_preference(cublasLtMatmulPreference_t p) {
  return blas_lt().MatmulPreferenceDestroy(p);
}
using Preference = Handle<cublasLtMatmulPreference_t, destroy_preference>;

/// Returns the milliseconds of several runs after a first run. Infinite if the kernel does not run.
float measure_time(const cublasLtMatmulAlgo_t& algorithm,
                   const std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&)>& run,
                   cudaStream_t stream) {
  constexpr int rounds = 5;
  // The first run loads the kernel and is not timed. Some proposals are not supported for the given
  // addresses.
  if (run(algorithm) != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<float>::infinity();
  Event begin, end;
  FQ_CUDA(cudaEventCreate(begin.out()));
  FQ_CUDA(cudaEventCreate(end.out()));
  FQ_CUDA(cudaEventRecord(begin.get(), stream));
  for (int i = 0; i < rounds; ++i) check(run(algorithm), "cublasLtMatmul");
  FQ_CUDA(cudaEventRecord(end.get(), stream));
  FQ_CUDA(cudaEventSynchronize(end.get()));
  float milliseconds = 0;
  FQ_CUDA(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()));
  return milliseconds;
}

Tensor random_factors(std::int64_t count, DType dtype, std::uint32_t key, Device device) {
  Tensor out = Tensor::empty({count}, dtype, device);
  fill_factors(out, key);
  return out;
}

}  // namespace

std::vector<cublasLtMatmulAlgo_t> algorithms(cublasLtHandle_t handle, const MatmulCall& call,
                                             const MatmulMemory& memory, std::int64_t workspace, int most) {
  Preference preference;
  FQ_BLAS(MatmulPreferenceCreate, preference.out());
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    FQ_BLAS(MatmulPreferenceSetAttribute, preference.get(), name, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace));
  // Partial sums are added in a fixed order: the same bits in every run.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(memory.left));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(memory.right));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(memory.out));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(memory.out));
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  FQ_BLAS(MatmulAlgoGetHeuristic, handle, call.operation.get(), call.left.get(), call.right.get(),
          call.out.get(), call.out.get(), preference.get(), most, results.data(), &found);
  std::vector<cublasLtMatmulAlgo_t> out;
  for (int i = 0; i < found; ++i)
    if (const auto& result = results[static_cast<std::size_t>(i)]; result.state == CUBLAS_STATUS_SUCCESS)
      out.push_back(result.algo);
  if (out.empty())
    throw BackendError("[cuda] cuBLASLt has no kernel for this product on this GPU: use --device cpu");
  return out;
}

cublasLtMatmulAlgo_t fastest(const std::vector<cublasLtMatmulAlgo_t>& all,
                             const std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&)>& run,
                             cudaStream_t stream) {
  // Differences below 5 % are noise. Earlier proposals are then preferred.
  constexpr float clearly = 0.95F;
  std::size_t best = 0;
  float least = measure_time(all.front(), run, stream);
  for (std::size_t i = 1; i < all.size(); ++i)
    if (const float own = measure_time(all[i], run, stream); own < clearly * least) {
      best = i;
      least = own;
    }
  return all[best];
}

// The results start as zeros, because a product does not write the gaps between strided rows.
ProductProbe::ProductProbe(const MatmulCall& call, DType factor, Device device)
    : left_(random_factors(call.extents[0], factor, 1, device)),
      right_(random_factors(call.extents[1], factor, 2, device)) {
  for (Tensor& result : results_) result = Tensor::zeros({call.extents[2]}, DType::f32, device);
}

std::int64_t ProductProbe::bytes(const MatmulCall& call, DType factor) {
  return (call.extents[0] + call.extents[1]) * bit_width(factor) / 8 + call.extents[2] * 8;
}

MatmulMemory ProductProbe::memory(bool second) {
  return {left_.raw(), right_.raw(), results_[second ? 1 : 0].mutable_raw()};
}

std::vector<cublasLtMatmulAlgo_t> ProductProbe::with_equal_bits(const std::vector<cublasLtMatmulAlgo_t>& all,
                                                                const Run& run) {
  std::vector<cublasLtMatmulAlgo_t> out{all.front()};
  if (run(all.front(), memory(false)) != CUBLAS_STATUS_SUCCESS) return out;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (run(all[i], memory(true)) != CUBLAS_STATUS_SUCCESS) continue;
    Tensor differ = Tensor::zeros({}, DType::i32, left_.device());
    find_difference(results_[0], results_[1], differ);
    if (differ.to_vector<std::int32_t>().front() == 0) out.push_back(all[i]);
  }
  return out;
}

}  // namespace fq::cuda
