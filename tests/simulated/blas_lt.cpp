// The functions of cuBLASLt that core calls. Column-major products in plain loops; what cuBLASLt documents
// that it has no kernel for is refused here too.

#include <algorithm>
#include <type_traits>
#include <vector>

#include <cublasLt.h>

#include "fakequant/core/numerics/number_formats.h"
#include "simulated/state.h"

namespace fq::simulated {
namespace {

struct Operation {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType type;
  std::uint64_t rows, columns;
  std::int64_t stride;
  std::int32_t batch = 1;
  std::int64_t batch_stride = 0;

  [[nodiscard]] bool four() const { return stride % 4 == 0 && batch_stride % 4 == 0; }
};

Operation& of(cublasLtMatmulDesc_t d) { return *reinterpret_cast<Operation*>(d); }
Layout& of(cublasLtMatrixLayout_t l) { return *reinterpret_cast<Layout*>(l); }

int token;

template <class Factor, class Sum>
struct Multiply {
  Operation op;
  Layout a, b, c;
  const void *left, *right;
  void* out;
  bool added, reversed;

  static Sum at(const Layout& m, const void* data, cublasOperation_t flip, std::int64_t i, std::int64_t j,
                std::int64_t batch) {
    const std::int64_t index =
        batch * m.batch_stride + (flip == CUBLAS_OP_T ? j + i * m.stride : i + j * m.stride);
    return static_cast<Sum>(static_cast<Wide>(static_cast<const Factor*>(data)[index]));
  }
  using Wide = std::conditional_t<std::is_same_v<Factor, bfloat16>, float, Factor>;

  [[nodiscard]] Sum term(std::int64_t i, std::int64_t p, std::int64_t batch,
                         const std::vector<Sum>& column) const {
    return at(a, left, op.a, i, p, batch) * column[static_cast<std::size_t>(p)];
  }

  void run() const {
    const auto m = static_cast<std::int64_t>(c.rows), n = static_cast<std::int64_t>(c.columns);
    const auto k = static_cast<std::int64_t>(op.a == CUBLAS_OP_T ? a.rows : a.columns);
    std::vector<Sum> row(static_cast<std::size_t>(k)), column(row);
    for (std::int64_t batch = 0; batch < c.batch; ++batch)
      for (std::int64_t j = 0; j < n; ++j) {
        for (std::int64_t p = 0; p < k; ++p)
          column[static_cast<std::size_t>(p)] = at(b, right, op.b, p, j, batch);
        for (std::int64_t i = 0; i < m; ++i) {
          Sum sum{};
          for (std::int64_t p = 0; p < k; ++p) sum += term(i, reversed ? k - 1 - p : p, batch, column);
          Sum& to = static_cast<Sum*>(out)[batch * c.batch_stride + j * c.stride + i];
          to = added ? to + sum : sum;
        }
      }
  }
};

bool is_one(cudaDataType type, const void* scale) {
  if (type == CUDA_R_32I) return *static_cast<const std::int32_t*>(scale) == 1;
  return type == CUDA_R_64F ? *static_cast<const double*>(scale) == 1
                            : *static_cast<const float*>(scale) == 1;
}

/// int8 products: only "TN", sizes and strides are multiples of four (cuBLAS's documentation of
/// cublasLtMatmul).
bool has_kernel(const Operation& op, const Layout& a, const Layout& b, const Layout& c) {
  const auto k = op.a == CUBLAS_OP_T ? a.rows : a.columns;
  const bool fits = k == (op.b == CUBLAS_OP_T ? b.columns : b.rows) &&
                    c.rows == (op.a == CUBLAS_OP_T ? a.columns : a.rows) &&
                    c.columns == (op.b == CUBLAS_OP_T ? b.rows : b.columns) && k > 0 && c.rows > 0 &&
                    c.columns > 0 && a.type == b.type && a.batch == c.batch && b.batch == c.batch;
  if (!fits || a.type != CUDA_R_8I) return fits;
  if (state().bytes_refused) return false;
  return op.a == CUBLAS_OP_T && op.b == CUBLAS_OP_N && k % 4 == 0 && c.rows % 4 == 0 && a.four() &&
         b.four() && c.four();
}

}  // namespace
}  // namespace fq::simulated

using namespace fq::simulated;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&token);
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_SIMULATED"; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *out = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  delete &of(d);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                              const void* value, std::size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto flip = *static_cast<const cublasOperation_t*>(value);
  if (name == CUBLASLT_MATMUL_DESC_TRANSA)
    of(d).a = flip;
  else if (name == CUBLASLT_MATMUL_DESC_TRANSB)
    of(d).b = flip;
  else
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t stride) {
  if (stride < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *out = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, stride});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l) {
  delete &of(l);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t name, const void* value,
                                                std::size_t) {
  if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    of(l).batch = *static_cast<const std::int32_t*>(value);
  else if (name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET)
    of(l).batch_stride = *static_cast<const std::int64_t*>(value);
  else
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = reinterpret_cast<cublasLtMatmulPreference_t>(&token);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t, const void*,
                                                    std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const bool small = of(c).rows * of(c).columns <= 256;  // where timing two that are alike costs little
  *found = has_kernel(of(d), of(a), of(b), of(c)) ? std::min(most, small ? 3 : 1) : 0;
  std::fill_n(results, *found, cublasLtMatmulHeuristicResult_t{});
  if (*found > 1) results[1].algo.data[0] = 1;  // adds in the reverse order
  return *found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t d, const void* alpha, const void* left,
                              cublasLtMatrixLayout_t a, const void* right, cublasLtMatrixLayout_t b,
                              const void* beta, const void*, cublasLtMatrixLayout_t, void* out,
                              cublasLtMatrixLayout_t c, const cublasLtMatmulAlgo_t* algorithm, void*,
                              std::size_t, cudaStream_t stream) {
  const std::scoped_lock lock(state().mutex);
  const Operation& op = of(d);
  if (!has_kernel(op, of(a), of(b), of(c)) || !is_one(op.scale, alpha)) return CUBLAS_STATUS_INVALID_VALUE;
  const bool added = is_one(op.scale, beta), reversed = algorithm->data[0] == 1;
  state().milliseconds = reversed ? 0.5f : 1.0f;  // so that times alone would choose the reversed order
  const auto run = [&]<class Factor, class Sum>(Factor, Sum) {
    const Multiply<Factor, Sum> product{op, of(a), of(b), of(c), left, right, out, added, reversed};
    submit(stream, [product] { product.run(); });
  };
  if (op.compute == CUBLAS_COMPUTE_32I)
    run(std::int8_t{}, std::int32_t{});
  else if (op.compute == CUBLAS_COMPUTE_64F)
    run(double{}, double{});
  else if (of(a).type == CUDA_R_16BF)
    run(fq::bfloat16{}, float{});
  else
    run(float{}, float{});
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
