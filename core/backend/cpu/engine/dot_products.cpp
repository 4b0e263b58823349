#include "fakequant/core/backend/cpu/engine/integer_products.h"

#if defined(__aarch64__)

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include <arm_neon.h>
#include <sys/auxv.h>

namespace fq::cpu {
namespace {

using detail::Codes;

constexpr unsigned long kAsimdDp = 1UL << 20;  // bit in AT_HWCAP
constexpr std::int64_t kAtOnce = 16;           // codes per vector
constexpr std::int64_t kNearCodes = 16 << 10;  // codes of w that fit into the first-level cache
constexpr std::uint8_t kHalf = 128;            // u8 codes are multiplied as the signed code - 128

int8x16_t signed_codes(const std::int8_t* p) { return vld1q_s8(p); }
int8x16_t signed_codes(const std::uint8_t* p) {
  // Flipping the top bit subtracts 128 from an unsigned byte and reads it as signed.
  return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), vdupq_n_u8(kHalf)));
}
/// Loads the last `count` < 16 codes of a row, padded with zeros.
template <class Code>
int8x16_t last_codes(const Code* p, std::int64_t count) {
  std::array<Code, kAtOnce> codes;
  codes.fill(std::is_unsigned_v<Code> ? kHalf : 0);
  std::memcpy(codes.data(), p, static_cast<std::size_t>(count));
  return signed_codes(codes.data());
}

#pragma GCC push_options  // to the pop: for processors with SDOT only
#pragma GCC target("arch=armv8.2-a+dotprod")

// rows * columns accumulators stay in registers: each load is used for several dot products.
template <int rows, int columns>
struct Tile {
  int32x4_t sums[rows][columns]{};

  template <class X, class W, class Load>
  void add(const X* x, const W* w, std::int64_t k, Load load) {
    int8x16_t left[rows];
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) left[r] = load(x + r * k);
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      const int8x16_t right = load(w + c * k);
#pragma GCC unroll 4
      for (int r = 0; r < rows; ++r) sums[r][c] = vdotq_s32(sums[r][c], left[r], right);
    }
  }
};

/// Computes sums of products of signed codes. `pitch` is the distance between rows of sums.
template <int rows, int columns, class X, class W>
void tile(const X* x, const W* w, std::int64_t k, std::int32_t* sums, std::int64_t pitch) {
  Tile<rows, columns> out;
  std::int64_t i = 0;
  for (; i + kAtOnce <= k; i += kAtOnce)
    out.add(x, w, k, [i](const auto* row) { return signed_codes(row + i); });
  if (i < k) out.add(x, w, k, [i, k](const auto* row) { return last_codes(row + i, k - i); });
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < columns; ++c) sums[r * pitch + c] = vaddvq_s32(out.sums[r][c]);
}

template <class Code>
std::uint32_t signed_sum(const Code* row, std::int64_t k) {
  const int8x16_t one = vdupq_n_s8(1);
  int32x4_t sum = vdupq_n_s32(0);
  std::int64_t i = 0;
  for (; i + kAtOnce <= k; i += kAtOnce) sum = vdotq_s32(sum, signed_codes(row + i), one);
  if (i < k) sum = vdotq_s32(sum, last_codes(row + i, k - i), one);
  return static_cast<std::uint32_t>(vaddvq_s32(sum));
}

#pragma GCC pop_options

template <int rows, class X, class W>
void row_tiles(const X* x, const W* w, std::int64_t k, std::int64_t columns, std::int32_t* sums,
               std::int64_t pitch) {
  std::int64_t c = 0;
  for (; c + 4 <= columns; c += 4) tile<rows, 4>(x, w + c * k, k, sums + c, pitch);
  for (; c < columns; ++c) tile<rows, 1>(x, w + c * k, k, sums + c, pitch);
}

/// Returns the effect of one factor's offset on sums of signed codes: 128 * the sum of each row of the other
/// factor.
template <class Other>
std::vector<std::uint32_t> offset_terms(bool is_unsigned, const Other* other, std::int64_t rows,
                                        std::int64_t k) {
  std::vector<std::uint32_t> terms(static_cast<std::size_t>(rows), 0);
  if (is_unsigned)
    for (std::int64_t r = 0; r < rows; ++r)
      terms[static_cast<std::size_t>(r)] = kHalf * signed_sum(other + r * k, k);
  return terms;
}

// With x = x' + 128: sum x * w = sum x' * w + 128 * sum w, and likewise for an unsigned w. Both terms apply
// if both are unsigned, plus 128 * 128 * k.
/// Adds the offsets. Intermediate sums wrap around as in SDOT; the result fits.
template <class X, class W>
void add_offsets(const X* x, const W* w, std::int64_t m, std::int64_t n, std::int64_t k, std::int32_t* sums) {
  constexpr bool of_x = std::is_unsigned_v<X>, of_w = std::is_unsigned_v<W>;
  const auto of_columns = offset_terms(of_x, w, n, k), of_rows = offset_terms(of_w, x, m, k);
  const auto both = of_x && of_w ? static_cast<std::uint32_t>(kHalf * kHalf * k) : 0U;
  for (std::int64_t r = 0; r < m; ++r)
    for (std::int64_t c = 0; c < n; ++c) {
      const auto sum = static_cast<std::uint32_t>(sums[r * n + c]) + of_rows[static_cast<std::size_t>(r)];
      sums[r * n + c] = static_cast<std::int32_t>(sum + of_columns[static_cast<std::size_t>(c)] + both);
    }
}

template <class X, class W>
void multiply_codes(std::int64_t m, std::int64_t n, std::int64_t k, const X* x, const W* w,
                    std::int32_t* sums) {
  // Columns of w that fit into the first-level cache are used by all rows of x before the next columns.
  const std::int64_t near = std::max<std::int64_t>(kNearCodes / std::max<std::int64_t>(k, 1) / 4 * 4, 4);
  for (std::int64_t c = 0; c < n; c += near) {
    const std::int64_t columns = std::min(near, n - c);
    std::int64_t r = 0;
    for (; r + 4 <= m; r += 4) row_tiles<4>(x + r * k, w + c * k, k, columns, sums + r * n + c, n);
    for (; r < m; ++r) row_tiles<1>(x + r * k, w + c * k, k, columns, sums + r * n + c, n);
  }
  if (std::is_unsigned_v<X> || std::is_unsigned_v<W>) add_offsets(x, w, m, n, k, sums);
}

template <class X>
void multiply_codes(std::int64_t m, std::int64_t n, std::int64_t k, const X* x, const Codes& w,
                    std::int32_t* sums) {
  if (w.dtype == DType::u8)
    multiply_codes(m, n, k, x, static_cast<const std::uint8_t*>(w.data), sums);
  else
    multiply_codes(m, n, k, x, static_cast<const std::int8_t*>(w.data), sums);
}

}  // namespace

bool has_dot_products() noexcept {
  static const bool has = (getauxval(AT_HWCAP) & kAsimdDp) != 0;
  return has;
}

void dot_products(std::int64_t m, std::int64_t n, std::int64_t k, const Codes& x, const Codes& w,
                  std::int32_t* sums) {
  if (x.dtype == DType::u8)
    multiply_codes(m, n, k, static_cast<const std::uint8_t*>(x.data), w, sums);
  else
    multiply_codes(m, n, k, static_cast<const std::int8_t*>(x.data), w, sums);
}

}  // namespace fq::cpu

#else

namespace fq::cpu {

bool has_dot_products() noexcept { return false; }

void dot_products(std::int64_t, std::int64_t, std::int64_t, const detail::Codes&, const detail::Codes&,
                  std::int32_t*) {}

}  // namespace fq::cpu

#endif
