#pragma once

/// Sums of products of codes in blocks, each output a chain of multiply-adds in an order that is part of the
/// result: as ggml and XNNPACK have it.

#include <cstdint>

namespace fq::cpu {

/// Outputs of a strip, whose codes and scales lie in one piece of memory.
constexpr std::int64_t chain_width = 16;

/// What `chain_blocks` reads and writes: codes of w of up to 4 bits, outputs in whole strips.
struct BlockChains {
  const std::uint8_t* x;           ///< codes + 128 [rows, columns]
  const float* x_scale = nullptr;  ///< [rows, columns / block]; null: 1
  const std::int8_t* w;  ///< codes, four of an output side by side: [strips, columns / 4, chain_width, 4]
  const float* w_scale;  ///< [strips, columns / block, chain_width]
  const std::int32_t* subtract = nullptr;  ///< what is taken off a block's sum: as w_scale; null: 0
  float* y;                                ///< [rows, pitch]
  std::int64_t columns, pitch;
  std::int64_t block;                   ///< columns that share a scale, a multiple of 32
  const float* first = nullptr;         ///< [outputs]; null: chains begin with 0
  const float* first_factor = nullptr;  ///< [rows]
  const float* last_factor = nullptr;   ///< [rows]; null: 1
  const float* last_bias = nullptr;     ///< [outputs]; null: outputs are the chains
  std::int64_t tiled_rows = 0;  ///< rows from 0 on that tiles multiply, as many as `rows_of_tiles` divides
  const std::int8_t* codes = nullptr;  ///< what tiles read in place of x and `subtract`; null: x, and 0
};

/// y = fma(float(S_b), x_scale * w_scale, y) for ascending blocks b, S_b the block's sum, from fl(first *
/// first_factor); at last fl(fl(y * last_factor) + last_bias). Of rows [begin, end) and outputs [n, last),
/// whole strips.
void chain_blocks(const BlockChains& all, std::int64_t begin, std::int64_t end, std::int64_t n,
                  std::int64_t last);

/// Rows that tiles take at a time (AMX), 0 where the instruction set in use has none; `tiled_rows`
/// (chain_operands.h) says whether this process may use them.
[[nodiscard]] std::int64_t rows_of_tiles();

/// Columns that share a scale in `chain_lanes`.
constexpr std::int64_t lane_block = 32;

/// A strip of `chain_lanes`: codes of up to 8 bits, without -128 on both sides.
struct LaneChains {
  const std::int16_t* x;  ///< codes [rows, columns]
  const float* x_scale;   ///< [rows, columns / 32]
  const std::int16_t* w;  ///< codes, two of an output side by side: [columns / 2, chain_width, 2]
  const float* w_scale;   ///< [columns / 32, chain_width]
  const float* bias;      ///< [chain_width]; null: none
  float* y;               ///< [rows, pitch], of which the strip begins there
  std::int64_t columns, pitch;
};

/// Each block in eight lanes of four products each: lane = fma(float(P), x_scale * w_scale, lane) from 0,
/// P the lane's sum; y = (a_0 + a_2) + (a_1 + a_3), a_l = lane_(l+4) + lane_l, and the bias
/// added to that.
void chain_lanes(const LaneChains& strip, std::int64_t begin, std::int64_t end);

}  // namespace fq::cpu
