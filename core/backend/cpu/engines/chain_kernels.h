#pragma once

/// Sums of products of codes in blocks. Each output is a chain of multiply-adds, in an order that is part of
/// the result, as in ggml and XNNPACK.

#include <cstdint>

namespace fq::cpu {

/// Outputs per strip. The codes and scales of a strip are contiguous.
constexpr std::int64_t chain_width = 16;

/// Inputs and outputs of `chain_blocks`: codes of w of up to 4 bits, outputs in whole strips.
struct BlockChains {
  const std::uint8_t* x;                   ///< codes + 128 [rows, columns]
  const float* x_scale = nullptr;          ///< [rows, columns / block]; null: 1
  const std::int8_t* w;                    ///< codes, four per output: [strips, columns / 4, chain_width, 4]
  const float* w_scale;                    ///< [strips, columns / block, chain_width]
  const std::int32_t* subtract = nullptr;  ///< subtracted from a block's sum, layout of w_scale; null: 0
  float* y;                                ///< [rows, pitch]
  std::int64_t columns, pitch;
  std::int64_t block;                   ///< columns per scale, a multiple of 32
  const float* first = nullptr;         ///< [outputs], start of the chains; null: 0
  const float* first_factor = nullptr;  ///< [rows]
  const float* last_factor = nullptr;   ///< [rows]; null: 1
  const float* last_bias = nullptr;     ///< [outputs]; null: outputs are the chains
  std::int64_t tiled_rows = 0;          ///< first rows that use tiles, a multiple of `rows_of_tiles`
  /// Codes of x for tiles, which ignore `subtract`; null: x, and no `subtract`.
  const std::int8_t* codes = nullptr;
};

/// Computes y = fma(float(S_b), x_scale * w_scale, y) for ascending blocks b with sum S_b, beginning with
/// fl(first * first_factor). In the end y = fl(fl(y * last_factor) + last_bias). Processes rows [begin, end)
/// and outputs [n, last), in whole strips.
void chain_blocks(const BlockChains& all, std::int64_t begin, std::int64_t end, std::int64_t n,
                  std::int64_t last);

/// Returns the number of rows that tiles (AMX) process at a time, or 0 if the current instruction set has
/// none. `tiled_rows` (chain_operands.h) checks whether this process may use them.
[[nodiscard]] std::int64_t rows_of_tiles();

/// Columns per scale in `chain_lanes`.
constexpr std::int64_t lane_block = 32;

/// One strip for `chain_lanes`: codes of up to 8 bits; x and w must not both contain -128.
struct LaneChains {
  const std::int16_t* x;  ///< codes [rows, columns]
  const float* x_scale;   ///< [rows, columns / 32]
  const std::int16_t* w;  ///< codes, two per output: [columns / 2, chain_width, 2]
  const float* w_scale;   ///< [columns / 32, chain_width]
  const float* bias;      ///< [chain_width]; null: none
  float* y;               ///< [rows, pitch], beginning at the strip
  std::int64_t columns, pitch;
};

/// Computes each block in eight lanes of four products: lane = fma(float(P), x_scale * w_scale, lane),
/// beginning with 0, where P is the sum of the lane's products. Then y = (a_0 + a_2) + (a_1 + a_3) with a_l =
/// lane_(l+4) + lane_l, plus the bias.
void chain_lanes(const LaneChains& strip, std::int64_t begin, std::int64_t end);

}  // namespace fq::cpu
