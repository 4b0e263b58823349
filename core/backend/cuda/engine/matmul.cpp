#include "fakequant/core/backend/cuda/engine/matmul.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "fakequant/core/backend/cuda/engine/algorithms.h"
#include "fakequant/core/backend/cuda/engine/matmul_call.h"
#include "fakequant/core/backend/cuda/runtime/capturing.h"
#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/error.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {
namespace {

constexpr std::int64_t kWorkspace = std::int64_t{32} << 20;  // what Hopper's kernels want at most

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

/// Of one device: cuBLASLt's handle, the memory its kernels work in, one after the other, and what it chose.
struct Multiplier {
  explicit Multiplier(Device device) {
    without_capture([&] { workspace = Storage(kWorkspace, device); });  // not in the memory of a capture
    FQ_BLAS(Create, &handle);
  }

  cublasLtHandle_t handle = nullptr;  // for as long as the process lives
  Storage workspace;
  std::mutex mutex;
  std::map<MatmulCall::Key, cublasLtMatmulAlgo_t> chosen;
};

Multiplier& multiplier(Device device) {
  static std::mutex mutex;
  static auto* all = new std::map<int, Multiplier>;
  const std::scoped_lock lock(mutex);
  return all->try_emplace(device.index, device).first->second;
}

/// Whether and how a product's algorithm is chosen by time.
enum class Choice : unsigned char {
  first,    ///< floats: the first that cuBLASLt names, by the shape alone, so that bits do not change
  fastest,  ///< codes: exact by every algorithm
  for_now   ///< codes whose time cannot be taken, as they are captured: the first, and chosen again later
};

template <class Run>
cublasLtMatmulAlgo_t choose_algorithm(Multiplier& own, const MatmulCall& call, const MatmulMemory& memory,
                                      Choice choice, cudaStream_t stream, const Run& run) {
  const std::scoped_lock lock(own.mutex);
  const auto known = own.chosen.find(call.key);
  if (known != own.chosen.end()) return known->second;
  const auto found = algorithms(own.handle, call, memory, kWorkspace, choice == Choice::fastest ? 8 : 1);
  if (choice == Choice::for_now) return found.front();
  return own.chosen.emplace(call.key, found.size() > 1 ? fastest(found, run, stream) : found.front())
      .first->second;
}

/// A sum of no products.
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

}  // namespace

void gemm(const Matrix& a, const Matrix& b, const Product& c, std::int64_t batch, Device device) {
  if (a.rows == 0 || b.columns == 0 || batch == 0) return;
  if (a.columns == 0) return clear(a.rows, b.columns, c, batch, device);
  const cudaStream_t stream = stream_of(device);
  Multiplier& own = multiplier(device);
  const auto call = MatmulCall::of(a, b, c, batch);
  const cudaDataType scale = matmul_types(a.dtype).scale;
  const Scalar one(scale, 1), beta(scale, c.added ? 1 : 0);
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm) {
    return blas_lt().Matmul(own.handle, call.operation.get(), one.bytes.data(), b.data, call.left.get(),
                            a.data, call.right.get(), beta.bytes.data(), c.data, call.out.get(), c.data,
                            call.out.get(), &algorithm, own.workspace.mutable_data(),
                            static_cast<std::size_t>(kWorkspace), stream);
  };
  const Choice codes = capturing(device) == nullptr ? Choice::fastest : Choice::for_now;
  const Choice choice = a.dtype == DType::i8 && !c.added ? codes : Choice::first;
  check(run(choose_algorithm(own, call, {b.data, a.data, c.data}, choice, stream, run)), "cublasLtMatmul");
}

}  // namespace fq::cuda
