#include "fakequant/core/cuda/matmul.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "fakequant/core/cuda/blas_lt.h"
#include "fakequant/core/cuda/runtime.h"
#include "fakequant/core/cuda/stream.h"
#include "fakequant/core/error.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

cublasStatus_t destroy_operation(cublasLtMatmulDesc_t d) { return blas_lt().MatmulDescDestroy(d); }
cublasStatus_t destroy_layout(cublasLtMatrixLayout_t l) { return blas_lt().MatrixLayoutDestroy(l); }
cublasStatus_t destroy_preference(cublasLtMatmulPreference_t p) {
  return blas_lt().MatmulPreferenceDestroy(p);
}

using Operation = Handle<cublasLtMatmulDesc_t, destroy_operation>;
using MatrixLayout = Handle<cublasLtMatrixLayout_t, destroy_layout>;
using Preference = Handle<cublasLtMatmulPreference_t, destroy_preference>;

constexpr std::int64_t kWorkspace = std::int64_t{32} << 20;  // what Hopper's kernels want at most

struct Types {
  cudaDataType factor, product;
  cublasComputeType_t compute;
  cudaDataType scale;
};

Types types_of(DType factor) {
  switch (factor) {
    case DType::f64:
      return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F};
    case DType::bf16:
      return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F};
    case DType::i8:
      return {CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I};
    default:
      return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F};
  }
}

/// One or zero of the scale's type.
struct Scalar {
  std::array<std::byte, 8> bytes{};
  Scalar(cudaDataType type, int value) {
    if (type == CUDA_R_64F)
      put(static_cast<double>(value));
    else if (type == CUDA_R_32I)
      put(static_cast<std::int32_t>(value));
    else
      put(static_cast<float>(value));
  }
  template <class T>
  void put(T value) {
    static_assert(sizeof(T) <= 8);
    std::copy_n(reinterpret_cast<const std::byte*>(&value), sizeof value, bytes.data());
  }
};

/// A row-major matrix as cuBLASLt's column-major one: its columns are the rows of the memory.
struct Columns {
  std::int64_t length, count, stride, batch_stride;

  static Columns of(std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t batch_stride) {
    const std::int64_t between = stride != 0 ? stride : columns;
    return {columns, rows, between, batch_stride != 0 ? batch_stride : rows * between};
  }
  static Columns of(const Matrix& m) {
    return m.transposed ? of(m.columns, m.rows, m.stride, m.batch_stride)
                        : of(m.rows, m.columns, m.stride, m.batch_stride);
  }
  [[nodiscard]] MatrixLayout layout(cudaDataType type, std::int64_t batch) const {
    MatrixLayout out;
    FQ_BLAS(MatrixLayoutCreate, out.out(), type, static_cast<std::uint64_t>(length),
            static_cast<std::uint64_t>(count), stride);
    if (batch == 1) return out;
    const auto matrices = static_cast<std::int32_t>(batch);
    FQ_BLAS(MatrixLayoutSetAttribute, out.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrices,
            sizeof matrices);
    FQ_BLAS(MatrixLayoutSetAttribute, out.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
            sizeof batch_stride);
    return out;
  }
};

/// Everything that cuBLASLt chooses a kernel by.
using Key = std::array<std::int64_t, 18>;

/// Of one device: cuBLASLt's handle, the memory its kernels work in, one after the other, and what it chose.
struct Multiplier {
  explicit Multiplier(Device device) : workspace(kWorkspace, device) { FQ_BLAS(Create, &handle); }

  cublasLtHandle_t handle = nullptr;  // for as long as the process lives
  Storage workspace;
  std::mutex mutex;
  std::map<Key, cublasLtMatmulAlgo_t> chosen;
};

Multiplier& multiplier(Device device) {
  static std::mutex mutex;
  static auto* all = new std::map<int, Multiplier>;
  const std::scoped_lock lock(mutex);
  return all->try_emplace(device.index, device).first->second;
}

/// How far a pointer and the steps from it are aligned, up to 256.
std::uint32_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256;
  return static_cast<std::uint32_t>(address & ~(address - 1));
}

struct Call {
  Operation operation;
  MatrixLayout left, right,
      out;  // cuBLASLt's: it computes the transpose of our product from those of b and a
  Key key;
};

Call describe_call(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch) {
  const Types types = types_of(a.dtype);
  const auto left = Columns::of(b), right = Columns::of(a),
             out = Columns::of(a.rows, b.columns, c.stride, c.batch_stride);
  Call call;
  FQ_BLAS(MatmulDescCreate, call.operation.out(), types.compute, types.scale);
  const cublasOperation_t flip_left = b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t flip_right = a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  FQ_BLAS(MatmulDescSetAttribute, call.operation.get(), CUBLASLT_MATMUL_DESC_TRANSA, &flip_left,
          sizeof flip_left);
  FQ_BLAS(MatmulDescSetAttribute, call.operation.get(), CUBLASLT_MATMUL_DESC_TRANSB, &flip_right,
          sizeof flip_right);
  call.left = left.layout(types.factor, batch);
  call.right = right.layout(types.factor, batch);
  call.out = out.layout(types.product, batch);
  call.key = {types.factor,      b.transposed,      a.transposed,       c.added,           batch,
              left.length,       left.count,        left.stride,        left.batch_stride, right.length,
              right.count,       right.stride,      right.batch_stride, out.stride,        out.batch_stride,
              alignment(a.data), alignment(b.data), alignment(c.data)};
  return call;
}

cublasLtMatmulAlgo_t choose(const Multiplier& own, const Call& call, const void* left, const void* right,
                            const void* out) {
  Preference preference;
  FQ_BLAS(MatmulPreferenceCreate, preference.out());
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    FQ_BLAS(MatmulPreferenceSetAttribute, preference.get(), name, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspace));
  // Sums of parts are added in their order: the same bits in every run.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(left));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(right));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(out));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(out));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  FQ_BLAS(MatmulAlgoGetHeuristic, own.handle, call.operation.get(), call.left.get(), call.right.get(),
          call.out.get(), call.out.get(), preference.get(), 1, &best, &found);
  if (found == 0) throw BackendError("[cuda] cuBLASLt has no kernel for this product on this GPU");
  return best.algo;
}

cublasLtMatmulAlgo_t kernel_of(Multiplier& own, const Call& call, const void* left, const void* right,
                               const void* out) {
  const std::scoped_lock lock(own.mutex);
  const auto known = own.chosen.find(call.key);
  if (known != own.chosen.end()) return known->second;
  return own.chosen.emplace(call.key, choose(own, call, left, right, out)).first->second;
}

/// A sum of no products.
void clear(std::int64_t rows, std::int64_t columns, const Product& c, std::int64_t batch, Device device) {
  if (c.added) return;
  const auto size = static_cast<std::size_t>(bit_width(c.dtype) / 8);
  const auto out = Columns::of(rows, columns, c.stride, c.batch_stride);
  for (std::int64_t i = 0; i < batch * rows; ++i) {
    const std::int64_t at = i / rows * out.batch_stride + i % rows * out.stride;
    fill_bytes(static_cast<std::byte*>(c.data) + static_cast<std::size_t>(at) * size, 0,
               static_cast<std::size_t>(columns) * size, device);
  }
}

}  // namespace

void gemm(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch, Device device) {
  if (a.rows == 0 || b.columns == 0 || batch == 0) return;
  if (a.columns == 0) return clear(a.rows, b.columns, c, batch, device);
  const cudaStream_t stream = stream_of(device);
  Multiplier& own = multiplier(device);
  const Call call = describe_call(a, b, c, batch);
  const auto algorithm = kernel_of(own, call, b.data, a.data, c.data);
  const cudaDataType scale = types_of(a.dtype).scale;
  const Scalar one(scale, 1), beta(scale, c.added ? 1 : 0);
  FQ_BLAS(Matmul, own.handle, call.operation.get(), one.bytes.data(), b.data, call.left.get(), a.data,
          call.right.get(), beta.bytes.data(), c.data, call.out.get(), c.data, call.out.get(), &algorithm,
          own.workspace.mutable_data(), static_cast<std::size_t>(kWorkspace), stream);
}

}  // namespace fq::cuda
