#pragma once

/// Instructions of GPUs from sm_80: copies to shared memory that need no registers, and products of codes on
/// tensor cores. On the host, a thread computes its own part of a product from the codes in shared memory, so
/// that the simulated device runs the same kernels.

#include <cstdint>
#include <cstring>

#include "fakequant/core/numerics/number_formats.h"

/// Unrolls the loop that follows, so that arrays indexed by its variable stay in registers.
#define FQ_UNROLL FQ_BY_TARGET(_Pragma("unroll"), )

namespace fq::cuda {
namespace loops {

#if defined(__CUDACC__)
__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}
template <int bytes>
__device__ __forceinline__ void start_copy(void* to, const void* from, int size) {
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(size)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(size)
                 : "memory");
}
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void load_matrices(const void* row, std::uint32_t (&words)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
}
/// sums += a * b, for signed codes or, with `shifted`, for unsigned codes in a.
template <bool shifted>
__device__ __forceinline__ void multiply_words(const std::uint32_t (&a)[4], std::uint32_t b0,
                                               std::uint32_t b1, std::int32_t (&sums)[4]) {
  if constexpr (shifted)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sums[0]), "r"(sums[1]),
          "r"(sums[2]), "r"(sums[3]));
  else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%10, %11, %12, %13};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(sums[0]), "r"(sums[1]),
          "r"(sums[2]), "r"(sums[3]));
}
#endif

}  // namespace loops

/// Starts a copy of 4 or 16 aligned bytes to shared memory. If not `valid`, writes zeros and does not read.
/// The bytes are there for a thread after its `wait_for_copies`, and for its block after the next barrier.
template <int bytes>
FQ_HD void copy_to_shared(void* to, const void* from, bool valid) {
  static_assert(bytes == 4 || bytes == 16);
  FQ_BY_TARGET(loops::start_copy<bytes>(to, from, valid ? bytes : 0),
               (valid ? std::memcpy(to, from, bytes) : std::memset(to, 0, bytes)));
}
FQ_HD void wait_for_copies() { FQ_BY_TARGET(loops::end_copies(), static_cast<void>(0)); }

/// Order in which lanes of a warp address a fragment. Lanes 0 to 7 address the first 16 codes of eight rows.
/// Lanes 8 to 15 address the next eight rows (`rows`, for x), or the other 16 codes of the same rows
/// (`halves`, for w).
enum class FragmentOrder : unsigned char { rows, halves };

/// 16 rows of 32 codes, distributed over the lanes of a warp by ldmatrix: word i of lane 4 * r + c has the
/// codes 4 * c .. 4 * c + 3 of the 16 codes that lane 8 * i + r addresses.
template <FragmentOrder order>
struct CodeFragment {
  static constexpr int lanes_to_row = order == FragmentOrder::rows ? 8 : 16,
                       lanes_to_half = order == FragmentOrder::rows ? 16 : 8;
#if defined(__CUDA_ARCH__)
  std::uint32_t words[4];
#else
  const std::int8_t* chunks[32];  // that the lanes address

  [[nodiscard]] int code(int row, int column) const {
    return chunks[row % 8 + row / 8 * lanes_to_row + column / 16 * lanes_to_half][column % 16];
  }
#endif
};
using XFragment = CodeFragment<FragmentOrder::rows>;
using WFragment = CodeFragment<FragmentOrder::halves>;

/// Loads a fragment. chunk(row, half) is the address of 16 codes in shared memory, 16-byte aligned. All
/// threads of the warp call it.
template <class Fragment, class Chunk>
FQ_HD Fragment load_fragment(int lane, const Chunk& chunk) {
  Fragment out;
  const auto own = [&](int each) {
    return chunk(each % 8 + each / Fragment::lanes_to_row % 2 * 8, each / Fragment::lanes_to_half % 2);
  };
  FQ_BY_TARGET(loops::load_matrices(own(lane), out.words), {
    static_cast<void>(lane);
    for (int each = 0; each < 32; ++each) out.chunks[each] = own(each);
  });
  return out;
}

/// Adds the products of 16 rows of x and eight rows of w: half 0 or 1 of its fragment. A lane has four exact
/// sums. Sums 0 and 1 belong to row lane / 4 of x, sums 2 and 3 to row lane / 4 + 8. Even sums belong to row
/// 2 * (lane % 4) of the half, odd sums to the next row. With `shifted`, 128 is added to the codes of x.
template <bool shifted>
FQ_HD void multiply_fragments(int lane, const XFragment& x, const WFragment& w, int half,
                              std::int32_t (&sums)[4]) {
#if defined(__CUDA_ARCH__)
  constexpr std::uint32_t flip = shifted ? 0x80808080u : 0u;  // code + 128, as an unsigned byte
  const std::uint32_t a[4]{x.words[0] ^ flip, x.words[1] ^ flip, x.words[2] ^ flip, x.words[3] ^ flip};
  loops::multiply_words<shifted>(a, w.words[2 * half], w.words[2 * half + 1], sums);
#else
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 32; ++k)
      sums[i] += (x.code(lane / 4 + i / 2 * 8, k) + (shifted ? 128 : 0)) *
                 w.code(half * 8 + lane % 4 * 2 + i % 2, k);
#endif
}

/// Adds four products of signed bytes to `sum`.
FQ_HD std::int32_t add_products(std::uint32_t a, std::uint32_t b, std::int32_t sum) {
  return FQ_BY_TARGET(__dp4a(static_cast<int>(a), static_cast<int>(b), sum), [&] {
    for (int shift = 0; shift < 32; shift += 8)
      sum += static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
    return sum;
  }());
}

}  // namespace fq::cuda
