#pragma once

/// Tiles of convolutions as products whose factors the kernel gathers from images (implicit GEMM), so that no
/// columns are in memory. Factors are codes or bf16 numbers of channels_last images. A chunk is 16 bytes of
/// channels of one pixel.

#include <type_traits>

#include "fakequant/core/backend/cuda/loops/divisor.h"
#include "fakequant/core/backend/cuda/loops/half_tiles.cuh"
#include "fakequant/core/backend/cuda/loops/launch.cuh"

namespace fq::cuda {

namespace loops {

#if defined(__CUDACC__)
// Uses the L1 cache, because the windows of neighbouring pixels overlap.
__device__ __forceinline__ void start_cached_copy(void* to, const void* from, int size) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(size)
               : "memory");
}
__device__ __forceinline__ void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int groups>
__device__ __forceinline__ void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}
/// sums += a [16, 16] b [16, 8], for bf16 numbers.
__device__ __forceinline__ void multiply_numbers(const std::uint32_t (&a)[4], std::uint32_t b0,
                                                 std::uint32_t b1, float (&sums)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

}  // namespace loops

inline constexpr int chunk_bytes = 16;

/// Starts a copy of a chunk to shared memory. If not `valid`, writes zeros and does not read.
FQ_HD void copy_chunk(void* to, const void* from, bool valid) {
  FQ_BY_TARGET(loops::start_cached_copy(to, from, valid ? chunk_bytes : 0),
               (valid ? std::memcpy(to, from, chunk_bytes) : std::memset(to, 0, chunk_bytes)));
}
/// Ends a group of copies of the thread.
FQ_HD void end_copy_group() { FQ_BY_TARGET(loops::end_copy_group(), static_cast<void>(0)); }
/// Waits for all groups of the thread's copies except the last `groups`.
template <int groups>
FQ_HD void wait_for_copy_groups() {
  FQ_BY_TARGET(loops::wait_for_groups<groups>(), static_cast<void>(0));
}

/// Rows of chunks in shared memory. The order of the chunks depends on the row, so that ldmatrix reads eight
/// rows from different banks.
template <int count, int row_chunks>
struct ChunkRows {
  static_assert(row_chunks == 4 || row_chunks % 8 == 0);
  alignas(chunk_bytes) std::int8_t bytes[count * row_chunks * chunk_bytes];

  /// Returns the chunk `at` of row first + row. `first` is a multiple of 8.
  [[nodiscard]] FQ_HD const std::int8_t* chunk(int first, unsigned row, unsigned at) const {
    const unsigned order = row_chunks == 4 ? row / 2 % 4 : row % 8;
    return bytes + first * row_chunks * chunk_bytes + (row * row_chunks + (at ^ order)) * chunk_bytes;
  }
  [[nodiscard]] FQ_HD std::int8_t* chunk(int first, unsigned row, unsigned at) {
    return const_cast<std::int8_t*>(static_cast<const ChunkRows&>(*this).chunk(first, row, at));
  }
};

/// Sum of products of factors of type X with weights: exact for codes.
template <class X>
using ProductSum = std::conditional_t<std::is_same_v<X, bfloat16>, float, std::int32_t>;
template <class X>
using WeightElement = std::conditional_t<std::is_same_v<X, bfloat16>, bfloat16, std::int8_t>;

/// Loads a fragment whose rows lie across the chunks: chunk(row, half) has eight columns of a row of its
/// transpose. Factors are bf16 numbers. All threads of the warp call it.
template <class Fragment, class Chunk>
FQ_HD Fragment load_transposed_fragment(int lane, const Chunk& chunk) {
#if defined(__CUDA_ARCH__)
  Fragment out;
  const std::int8_t* own =
      chunk(lane % 8 + lane / Fragment::lanes_to_row % 2 * 8, lane / Fragment::lanes_to_half % 2);
  loops::load_transposed_matrices(reinterpret_cast<const std::uint16_t*>(own), out.words);
  return out;
#else
  return load_fragment<Fragment>(lane, chunk);
#endif
}

#if !defined(__CUDA_ARCH__)
/// Reads the elements of a row of a fragment from the chunks that its lanes address.
template <bool transposed, class T, class Fragment, int count>
void read_fragment_row(const Fragment& fragment, int row, ProductSum<T> (&elements)[count]) {
  constexpr int in_chunk = chunk_bytes / static_cast<int>(sizeof(T));
  for (int k = 0; k < count; ++k) {
    const int line = transposed ? k : row, at = transposed ? row : k;
    const auto* chunk =
        fragment
            .chunks[line % 8 + line / 8 * Fragment::lanes_to_row + at / in_chunk * Fragment::lanes_to_half];
    elements[k] = static_cast<ProductSum<T>>(reinterpret_cast<const T*>(chunk)[at % in_chunk]);
  }
}
#endif

/// Adds the products of 16 rows and eight outputs: half 0 or 1 of the fragment `w`. Sums have the order of
/// `multiply_fragments`.
template <class X, bool transposed, class Left, class Right>
FQ_HD void multiply_chunks(int lane, const Left& x, const Right& w, int half, ProductSum<X> (&sums)[4]) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<X, bfloat16>)
    loops::multiply_numbers(x.words, w.words[2 * half], w.words[2 * half + 1], sums);
  else
    loops::multiply_words<std::is_unsigned_v<X>>(x.words, w.words[2 * half], w.words[2 * half + 1], sums);
#else
  constexpr int count = 2 * chunk_bytes / static_cast<int>(sizeof(X));
  ProductSum<X> left[2][count], right[2][count];
  for (int i = 0; i < 2; ++i) {
    read_fragment_row<transposed, X>(x, lane / 4 + 8 * i, left[i]);
    read_fragment_row<transposed, WeightElement<X>>(w, half * 8 + lane % 4 * 2 + i, right[i]);
  }
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < count; ++k) sums[i] += left[i / 2][k] * right[i % 2][k];
#endif
}

/// Sums of a block of eight warps: 128 rows by 64 outputs, or 256 by 32. A warp has 32 by 32. At most 80
/// registers, so that three blocks run on a processor.
template <int outputs_of_tile>
struct ConvTile {
  static constexpr int threads = block_threads, least_blocks = 3, step_phases = 1, end_phases = 1;
  static constexpr bool block_barriers[] = {true};
  static constexpr int warp_side = 32, outputs = outputs_of_tile, warps_across = outputs / warp_side,
                       warps_down = threads / 32 / warps_across, rows = warps_down * warp_side;

  template <class Sum>
  using Sums = Sum[2][4][4];

  /// Position of a warp in the tile.
  struct Warp {
    int lane, row, output;
    explicit FQ_HD Warp(int thread)
        : lane(thread % 32),
          row(thread / 32 % warps_down * warp_side),
          output(thread / 32 / warps_down * warp_side) {}
  };

  /// Adds the products of 32 bytes of each row. `x(i)` loads the fragment of rows 16 * i of the warp, and
  /// `w(i)` of outputs 16 * i. The tile has `used` outputs.
  template <class X, bool transposed, class LoadX, class LoadW>
  static FQ_HD void add_products(const Warp& warp, int used, const LoadX& x, const LoadW& w,
                                 Sums<ProductSum<X>>& sums) {
    if (warp.output >= used) return;
    const decltype(x(0)) rows_of_x[2]{x(0), x(1)};
    FQ_UNROLL
    for (int pair = 0; pair < 2; ++pair) {
      if (warp.output + 16 * pair >= used) break;
      const auto outputs_of_w = w(pair);
      for (int i = 0; i < 2; ++i)
        for (int half = 0; half < 2; ++half)
          multiply_chunks<X, transposed>(warp.lane, rows_of_x[i], outputs_of_w, half,
                                         sums[i][2 * pair + half]);
    }
  }

  template <class Sum>
  static FQ_HD void clear_sums(Sums<Sum>& sums) {
    for (auto& rows_of_sums : sums)
      for (auto& quad : rows_of_sums)
        for (Sum& sum : quad) sum = 0;
  }

  /// Stores the sums of the tile: `row(r)` is the memory of the tile's outputs in its row r, or null.
  template <class Sum, class Row>
  static FQ_HD void store(const Warp& warp, int used, const Sums<Sum>& sums, const Row& row) {
    FQ_UNROLL
    for (int i = 0; i < 2; ++i)
      for (int pair = 0; pair < 2; ++pair) {
        Sum* to = row(warp.row + 16 * i + 8 * pair + warp.lane / 4);
        if (to == nullptr) continue;
        FQ_UNROLL
        for (int n = 0; n < 4; ++n)
          store_two(to, warp.output + 8 * n + warp.lane % 4 * 2, used, sums[i][n][2 * pair],
                    sums[i][n][2 * pair + 1]);
      }
  }

 private:
  /// Stores two neighbouring sums, if they exist. Four threads fill a sector of 32 bytes.
  template <class Sum>
  static FQ_HD void store_two(Sum* row, int output, int used, Sum left, Sum right) {
    Sum* to = row + output;
    if (output + 1 < used && reinterpret_cast<std::uintptr_t>(to) % 8 == 0) {
      *reinterpret_cast<uint2*>(to) = {std::bit_cast<std::uint32_t>(left),
                                       std::bit_cast<std::uint32_t>(right)};
      return;
    }
    if (output < used) to[0] = left;
    if (output + 1 < used) to[1] = right;
  }
};

}  // namespace fq::cuda
