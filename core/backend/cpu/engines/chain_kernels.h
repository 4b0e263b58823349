#pragma once

/// Sums of products of codes in blocks, each output a chain of multiply-adds in an order that is part of the
/// result: as ggml and XNNPACK have it.

#include <cstdint>

namespace fq::cpu {

/// Outputs that lie side by side in memory: the rows of a weight are padded to a multiple of it.
constexpr std::int64_t chain_width = 32;

/// The operands. Products of x and w, and sums of two of them, must fit 16 bits; sums of 16 of them too, but
/// for `chain_lanes`.
struct BlockChains {
  const std::int16_t* x;  ///< codes [rows, columns]
  const float* x_scale;   ///< [rows, columns / block]; null: 1
  const std::int16_t* w;  ///< codes, turned over: [columns, width]
  const float* w_scale;   ///< [columns / block, width]
  float* y;               ///< [rows, width]
  std::int64_t columns, width;
  std::int64_t block;  ///< columns that share a scale, a multiple of 16
};

/// y = fma(float(S_b), x_scale * w_scale, y) for ascending blocks b, S_b the block's sum: y holds where the
/// chains begin. Of rows [begin, end) and the `chain_width` outputs from `output`.
void chain_blocks(const BlockChains& chains, std::int64_t begin, std::int64_t end, std::int64_t output);
/// Blocks of 32, in eight lanes of four products each: lane = fma(float(P), x_scale * w_scale, lane) from 0,
/// P the lane's sum; y = (a_0 + a_2) + (a_1 + a_3), a_l = lane_(l+4) + lane_l.
void chain_lanes(const BlockChains& chains, std::int64_t begin, std::int64_t end, std::int64_t output);

}  // namespace fq::cpu
