#pragma once

/// Candidate cuBLASLt kernels for a product, and choice of the fastest.

#include <functional>
#include <vector>

#include "fakequant/core/backend/cuda/engine/matmul.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// Addresses of cuBLASLt's left and right factor and of the product.
struct MatmulMemory {
  const void *left, *right;
  void* out;
};

/// Returns up to `most` kernels that cuBLASLt proposes, best first. Each gives the same bits in every run.
/// Throws BackendError if there is none.
[[nodiscard]] std::vector<cublasLtMatmulAlgo_t> algorithms(cublasLtHandle_t handle, const MatmulCall& call,
                                                           const MatmulMemory& memory, std::int64_t workspace,
                                                           int most);

/// Runs each kernel a few times in the stream, waits, and returns the fastest. Skips kernels that fail. A
/// later kernel must be faster than the best one before it by more than a twentieth.
[[nodiscard]] cublasLtMatmulAlgo_t fastest(
    const std::vector<cublasLtMatmulAlgo_t>& all,
    const std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&)>& run, cudaStream_t stream);

/// Random factors of a product, and room for two results.
class ProductProbe {
 public:
  /// Runs a kernel on these addresses.
  using Run = std::function<cublasStatus_t(const cublasLtMatmulAlgo_t&, const MatmulMemory&)>;

  /// Throws SystemError if memory is short.
  ProductProbe(const MatmulCall& call, DType factor, Device device);
  /// Returns the bytes that a probe of the product needs.
  [[nodiscard]] static std::int64_t bytes(const MatmulCall& call, DType factor);

  /// Returns the kernels whose results have the bits of the first kernel's result, in their order. These
  /// kernels add the products in the same order: another order rounds differently in almost every long sum of
  /// random products. Waits for the device.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> with_equal_bits(
      const std::vector<cublasLtMatmulAlgo_t>& all, const Run& run);
  /// Returns the addresses of the factors and of the first or second result.
  [[nodiscard]] MatmulMemory memory(bool second);

 private:
  Tensor left_, right_, results_[2];
};

/// Fills bf16 or f32 with numbers of random sign and significand, with magnitudes from 1/8 to 2.
void fill_factors(Tensor& out, std::uint32_t key);
/// Sets `differ` (i32) to 1 if an element of 4 bytes has other bits in a than in b.
void find_difference(const Tensor& a, const Tensor& b, Tensor& differ);

}  // namespace fq::cuda
