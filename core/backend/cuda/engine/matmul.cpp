#include "fakequant/core/backend/cuda/engine/matmul.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include "fakequant/core/backend/cuda/engine/algorithms.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/backend/cuda/runtime/work.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {

MatmulTypes matmul_types(DType factor) {
  switch (factor) {
    case DType::f64:
      return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F};
    case DType::bf16:
      return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F};
    case DType::i8:
      return {CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I};
    default:
      // COMPUTE_32F without TF32: sums of codes in f32 must be exact.
      return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F};
  }
}

MatmulColumns MatmulColumns::of(std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                std::int64_t batch_stride) {
  // A row-major matrix [rows, columns] in memory is a column-major matrix [columns, rows].
  const std::int64_t between = stride != 0 ? stride : columns;
  return {columns, rows, between, batch_stride != 0 ? batch_stride : rows * between};
}
MatmulColumns MatmulColumns::of(const Matrix& m) {
  return m.transposed ? of(m.columns, m.rows, m.stride, m.batch_stride)
                      : of(m.rows, m.columns, m.stride, m.batch_stride);
}

MatrixLayout MatmulColumns::layout(cudaDataType type, std::int64_t batch) const {
  MatrixLayout out;
  FQ_BLAS(MatrixLayoutCreate, out.out(), type, static_cast<std::uint64_t>(length),
          static_cast<std::uint64_t>(count), stride);
  if (batch == 1) return out;
  if (batch > std::numeric_limits<std::int32_t>::max())
    throw ArgumentError(
        fmt::format("[cuda] a batch has {} products, cuBLASLt supports at most 2^31 - 1: split it", batch));
  const auto matrices = static_cast<std::int32_t>(batch);
  FQ_BLAS(MatrixLayoutSetAttribute, out.get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &matrices,
          sizeof matrices);
  FQ_BLAS(MatrixLayoutSetAttribute, out.get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride,
          sizeof batch_stride);
  return out;
}

std::uint32_t alignment(const void* pointer) {
  // address & -address is the lowest bit that is set: the alignment.
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256;
  return static_cast<std::uint32_t>(address & ~(address - 1));
}

MatmulCall MatmulCall::of(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch) {
  const MatmulTypes types = matmul_types(a.dtype);
  // c^T = b^T * a^T in column-major order, which is c = a * b in row-major order.
  const auto left = MatmulColumns::of(b), right = MatmulColumns::of(a),
             out = MatmulColumns::of(a.rows, b.columns, c.stride, c.batch_stride);
  MatmulCall call;
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
  // The alignments belong to the key, because an algorithm may require the alignment for which it was chosen.
  call.key = {types.factor,      b.transposed,      a.transposed,       c.added,           batch,
              left.length,       left.count,        left.stride,        left.batch_stride, right.length,
              right.count,       right.stride,      right.batch_stride, out.stride,        out.batch_stride,
              alignment(a.data), alignment(b.data), alignment(c.data)};
  call.extents = {left.extent(batch), right.extent(batch), out.extent(batch)};
  return call;
}

namespace {

constexpr std::int64_t kWorkspace = std::int64_t{32} << 20;  // largest size that Hopper kernels use

/// One or zero in the type of the scale.
// cuBLASLt reads alpha and beta from memory in the type of the scale.
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

/// Per-device state: the cuBLASLt handle, the workspace that its kernels share one after another, and the
/// chosen algorithms.
struct Multiplier {
  explicit Multiplier(Device device) {
    run_uncaptured([&] { workspace = Storage(kWorkspace, device); });  // outside of a capture's memory
    FQ_BLAS(Create, &handle);
  }

  cublasLtHandle_t handle = nullptr;  // never destroyed
  Storage workspace;
  std::mutex mutex;
  std::map<MatmulCall::Key, cublasLtMatmulAlgo_t> chosen;
};

Multiplier& multiplier(Device device) {
  static std::mutex mutex;
  // Never destroyed: at exit, the CUDA runtime may end before static objects.
  static auto* all = new std::map<int, Multiplier>;
  const std::scoped_lock lock(mutex);
  return all->try_emplace(device.index, device).first->second;
}

/// Choice of a product's algorithm.
enum class Choice : unsigned char {
  first,             ///< the first proposal of cuBLASLt, which depends only on the shape
  fastest,           ///< codes: the fastest, as every algorithm is exact
  fastest_of_equals  ///< floats: the fastest proposal with the bits of the first one
};

constexpr std::int64_t kFewProducts = std::int64_t{1} << 22;  // a product of fewer takes microseconds
constexpr std::int64_t kProbeBytes = std::int64_t{1} << 30;

// Timing runs the kernels, so products that add to their destination are never timed.
Choice choice_of(const MatmulCall& call, const Matrix& a, const Matrix& b, const Product& c,
                 std::int64_t batch) {
  if (c.added || a.dtype == DType::f64) return Choice::first;
  if (a.dtype == DType::i8) return Choice::fastest;
  // Few terms do not show the order of a sum.
  const bool timed = a.columns >= 32 && batch * a.rows * a.columns * b.columns >= kFewProducts &&
                     ProductProbe::bytes(call, a.dtype) <= kProbeBytes;
  return timed ? Choice::fastest_of_equals : Choice::first;
}

/// Returns the fastest of the proposals that give the bits of the first one. Bits then do not depend on
/// times.
cublasLtMatmulAlgo_t fastest_of_equals(const std::vector<cublasLtMatmulAlgo_t>& found, const MatmulCall& call,
                                       DType factor, Device device, const ProductProbe::Run& run) {
  try {
    ProductProbe probe(call, factor, device);
    const auto equal = probe.with_equal_bits(found, run);
    const auto run_probe = [&](const auto& algorithm) { return run(algorithm, probe.memory(false)); };
    return equal.size() > 1 ? fastest(equal, run_probe, device_stream(device)) : found.front();
  } catch (const SystemError&) {  // memory is short
    return found.front();
  }
}

cublasLtMatmulAlgo_t choose_algorithm(Multiplier& own, const MatmulCall& call, const MatmulMemory& memory,
                                      Choice choice, DType factor, Device device,
                                      const ProductProbe::Run& run) {
  const std::scoped_lock lock(own.mutex);
  const auto known = own.chosen.find(call.key);
  if (known != own.chosen.end()) return known->second;
  // A captured product cannot be timed: it uses the first proposal, and a later product is timed.
  const bool captured = capturing(device) != nullptr, timed = choice != Choice::first;
  const auto found = algorithms(own.handle, call, memory, kWorkspace, timed && !captured ? 8 : 1);
  if (timed && captured) return found.front();
  cublasLtMatmulAlgo_t best = found.front();
  if (found.size() > 1 && choice == Choice::fastest)
    best = fastest(
        found, [&](const auto& algorithm) { return run(algorithm, memory); }, device_stream(device));
  if (found.size() > 1 && choice == Choice::fastest_of_equals)
    best = fastest_of_equals(found, call, factor, device, run);
  return own.chosen.emplace(call.key, best).first->second;
}

/// Writes zeros, for a product over zero terms.
// Rows of a strided product are not contiguous, so each is cleared separately.
void clear(std::int64_t rows, std::int64_t columns, const Product& c, std::int64_t batch, Device device) {
  if (c.added) return;
  const auto size = static_cast<std::size_t>(bit_width(c.dtype) / 8);
  const auto out = MatmulColumns::of(rows, columns, c.stride, c.batch_stride);
  for (std::int64_t i = 0; i < batch * rows; ++i) {
    const std::int64_t at = i / rows * out.batch_stride + i % rows * out.stride;
    fill_bytes(static_cast<std::byte*>(c.data) + static_cast<std::size_t>(at) * size, 0,
               static_cast<std::size_t>(columns) * size, device);
  }
}

/// Counts the product.
void note_product(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch) {
  const auto bytes = [](std::int64_t elements, DType type) { return elements * bit_width(type) / 8; };
  note_read(a.data, bytes(batch * a.rows * a.columns, a.dtype));
  note_read(b.data, bytes(batch * b.rows * b.columns, b.dtype));
  const std::int64_t out = bytes(batch * a.rows * b.columns, c.dtype);
  if (c.added) note_read(c.data, out);
  note_written(c.data, out);
  note_work(WorkKind::product);
}

}  // namespace

void gemm(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch, Device device) {
  if (a.rows == 0 || b.columns == 0 || batch == 0) return;
  if (a.columns == 0) return clear(a.rows, b.columns, c, batch, device);
  const cudaStream_t stream = device_stream(device);
  Multiplier& own = multiplier(device);
  const auto call = MatmulCall::of(a, b, c, batch);
  const cudaDataType scale = matmul_types(a.dtype).scale;
  const Scalar one(scale, 1), beta(scale, c.added ? 1 : 0);
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm, const MatmulMemory& memory) {
    return blas_lt().Matmul(own.handle, call.operation.get(), one.bytes.data(), memory.left, call.left.get(),
                            memory.right, call.right.get(), beta.bytes.data(), memory.out, call.out.get(),
                            memory.out, call.out.get(), &algorithm, own.workspace.mutable_data(),
                            static_cast<std::size_t>(kWorkspace), stream);
  };
  const MatmulMemory memory{b.data, a.data, c.data};
  const auto algorithm =
      choose_algorithm(own, call, memory, choice_of(call, a, b, c, batch), a.dtype, device, run);
  note_product(a, b, c, batch);
  check(run(algorithm, memory), "cublasLtMatmul");
}

}  // namespace fq::cuda
