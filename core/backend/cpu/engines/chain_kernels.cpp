// Highway uses the byte products of AVX-512 VNNI only if their target is requested.
#define HWY_WANT_AVX3_DL

#include "fakequant/core/backend/cpu/engines/chain_kernels.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/engines/chain_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/engines/chain_sums-inl.h"
//
#include "fakequant/core/backend/cpu/vector/tiles-inl.h"
//
#include "fakequant/core/backend/cpu/engines/tile_chains-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

using cpu::BlockChains;

// x is at most 255 and w at most 8 in magnitude: 16 products of 2040 per int16 lane are at most 32640.
/// Columns per step: their sums of pairs of products fit 16 bits.
constexpr int kColumns = 32;

#if HWY_TARGET == HWY_SCALAR
constexpr int kTileVectors = 1;

template <int rows, int vectors>
HWY_INLINE void add_columns(const std::uint8_t* x, std::int64_t pitch, const std::int8_t* const* w,
                            SumVector (*sums)[vectors]) {
  for (int r = 0; r < rows; ++r) {
    std::int32_t sum = 0;
    for (int k = 0; k < kColumns; ++k) sum += x[r * pitch + k] * w[0][k / 4 * 4 * cpu::chain_width + k % 4];
    sums[r][0] = hn::Add(sums[r][0], hn::Set(SumTag(), sum));
  }
}
#else
// Two vectors of outputs share each load of x, where the registers suffice.
constexpr int kTileVectors = HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2 ? 2 : 1;

/// Adds four more columns, for rows of x that are `pitch` apart.
template <int rows, int vectors>
HWY_INLINE void add_four(const std::uint8_t* x, std::int64_t pitch, const std::int8_t* const* w,
                         std::int64_t column, ByteSums (*bytes)[vectors]) {
  hn::Vec<CodeTag> codes[vectors];
  for (int v = 0; v < vectors; ++v) codes[v] = hn::LoadU(CodeTag(), w[v] + column * cpu::chain_width);
  for (int r = 0; r < rows; ++r) {
    // Four codes of a row of x are in every lane. Each lane of w has the same four columns of one output.
    const auto four = hn::BitCast(ByteTag(), repeated(x + r * pitch + column));
    for (int v = 0; v < vectors; ++v) bytes[r][v] = more(bytes[r][v], four, codes[v]);
  }
}
template <int rows, int vectors, std::int64_t... fours>
HWY_INLINE void add_fours(const std::uint8_t* x, std::int64_t pitch, const std::int8_t* const* w,
                          ByteSums (*bytes)[vectors], std::integer_sequence<std::int64_t, fours...>) {
  (add_four<rows, vectors>(x, pitch, w, 4 * fours, bytes), ...);
}

/// Adds products of kColumns to the sums.
template <int rows, int vectors>
HWY_INLINE void add_columns(const std::uint8_t* x, std::int64_t pitch, const std::int8_t* const* w,
                            SumVector (*sums)[vectors]) {
  ByteSums bytes[rows][vectors];
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) bytes[r][v] = begun(sums[r][v]);
  add_fours<rows, vectors>(x, pitch, w, bytes, std::make_integer_sequence<std::int64_t, kColumns / 4>());
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) sums[r][v] = ended(sums[r][v], bytes[r][v]);
}
#endif

/// Returns the offset of the outputs beginning with n in strips of `high` rows of numbers.
// Strips hold 16 outputs. A vector may be narrower and then begins inside of a strip.
HWY_INLINE std::int64_t strip_offset(std::int64_t n, std::int64_t high, std::int64_t together) {
  const std::int64_t within = n % cpu::chain_width;
  return (n - within) * high + within * together;
}

/// Computes one tile of chains. `once`: a block is one step.
template <bool once, int rows, int vectors>
HWY_INLINE void chain_tile(const BlockChains& a, std::int64_t row, std::int64_t n) {
  const FloatTag d;
  const SumTag whole;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t blocks = a.columns / a.block;
  const std::uint8_t* x = a.x + row * a.columns;
  const std::int8_t* w[vectors];
  std::int64_t scale[vectors];
  FloatVector chains[rows][vectors];
  for (int v = 0; v < vectors; ++v) {
    w[v] = a.w + strip_offset(n + v * lanes, a.columns, 4);
    scale[v] = strip_offset(n + v * lanes, blocks, 1);
    for (int r = 0; r < rows; ++r) chains[r][v] = begun_chain(a, row + r, n + v * lanes);
  }
  for (std::int64_t b = 0; b < blocks; ++b) {
    SumVector sums[rows][vectors];
    for (int v = 0; v < vectors; ++v) {
      // ggml's codes of x have an offset of 128, so that they are unsigned bytes. `subtract` is 128 * the sum
      // of the weights of a block, which makes the sum exact. XNNPACK has its own term for the offset.
      const SumVector offset = a.subtract == nullptr
                                   ? hn::Zero(whole)
                                   : hn::Neg(hn::LoadU(whole, a.subtract + scale[v] + b * cpu::chain_width));
      for (int r = 0; r < rows; ++r) sums[r][v] = offset;
    }
    std::int64_t k = 0;
    do {
      add_columns<rows, vectors>(x, a.columns, w, sums);
      x += kColumns;
      for (int v = 0; v < vectors; ++v) w[v] += kColumns * cpu::chain_width;
      k += kColumns;
    } while (!once && k < a.block);
    for (int r = 0; r < rows; ++r) {
      const FloatVector x_scale = hn::Set(d, a.x_scale != nullptr ? a.x_scale[(row + r) * blocks + b] : 1.0f);
      for (int v = 0; v < vectors; ++v)
        // Integer sums are exact in any order. The chain of multiply-adds over blocks is in the engine's
        // order, which determines the bits.
        chains[r][v] = next(chains[r][v], sums[r][v], x_scale, a.w_scale + scale[v] + b * cpu::chain_width);
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) store_chain(a, row + r, n + v * lanes, chains[r][v]);
}

template <bool once, int vectors>
HWY_INLINE void chain_rows(const BlockChains& a, std::int64_t begin, std::int64_t end, std::int64_t n) {
  std::int64_t row = begin;
  for (; row + 4 <= end; row += 4) chain_tile<once, 4, vectors>(a, row, n);
  for (; row < end; ++row) chain_tile<once, 1, vectors>(a, row, n);
}
template <bool once>
HWY_INLINE void chain_part(const BlockChains& a, std::int64_t begin, std::int64_t end, std::int64_t n,
                           std::int64_t last) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  for (; n + kTileVectors * lanes <= last; n += kTileVectors * lanes)
    chain_rows<once, kTileVectors>(a, begin, end, n);
  for (; n < last; n += lanes) chain_rows<once, 1>(a, begin, end, n);
}

HWY_ATTR void ChainBlocks(const BlockChains& a, std::int64_t begin, std::int64_t end, std::int64_t n,
                          std::int64_t last) {
  // With AMX, tiles compute the rows below a.tiled_rows, with the same bits.
  begin = chain_tiles(a, begin, end, n, last);
  if (a.block == kColumns) return chain_part<true>(a, begin, end, n, last);
  chain_part<false>(a, begin, end, n, last);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(ChainBlocks);
HWY_EXPORT(RowsOfTiles);

void cpu::chain_blocks(const BlockChains& all, std::int64_t begin, std::int64_t end, std::int64_t n,
                       std::int64_t last) {
  HWY_DYNAMIC_DISPATCH(ChainBlocks)(all, begin, end, n, last);
}
std::int64_t cpu::rows_of_tiles() { return HWY_DYNAMIC_DISPATCH(RowsOfTiles)(); }

}  // namespace fq
#endif
