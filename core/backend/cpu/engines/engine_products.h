#pragma once

/// Codes and products of engines that quantize the rows of a linear layer at run time, on the host. The
/// operands are checked: f32 [rows, columns] of x, i8 [outputs, columns] of codes, all row-major.

#include <cstdint>
#include <vector>

#include "fakequant/core/backend/cpu/memory/host_memory.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// A weight [outputs, columns] for block products, in strips of outputs (chain_kernels.h).
struct PackedWeight {
  std::int64_t outputs = 0, columns = 0, block = 0;
  cpu::ArenaVector<std::int8_t> bytes;     ///< codes for `chain_blocks`; empty: `words` has the codes
  cpu::ArenaVector<std::int16_t> words;    ///< codes for `chain_lanes`
  cpu::ArenaVector<float> scales;          ///< one per block
  cpu::ArenaVector<std::int32_t> offsets;  ///< ggml: added to the sum of a block by the offset of x
  std::vector<float> zero_terms;           ///< XNNPACK: added to an output per unit of the zero point of x
};

}  // namespace fq::detail

namespace fq::cpu {

using detail::PackedWeight;

/// Computes codes i8 in the shape of x, and steps f16 [rows, columns / 32]. `extreme_codes` f32 [rows,
/// columns / 32] has the code of each block's extreme; undefined for llama.cpp's rule. Returns whether a
/// number was NaN.
bool ggml_codes(const Tensor& x, const Tensor& extreme_codes, detail::GgmlRounding rounding, Tensor& codes,
                Tensor& steps);

/// Packs a weight for repacked buffers (`chain_blocks`; 4-bit codes) or plain buffers (`chain_lanes`). Steps
/// are f32 numbers that f16 represents exactly, so their products are exact.
[[nodiscard]] PackedWeight ggml_weight(const Tensor& codes, const Tensor& steps, bool repack);
/// Computes y f32 [rows, outputs]. `bias` f32 [outputs] is added to the engine's product; it may be
/// undefined.
void ggml_product(const Tensor& x, const Tensor& x_steps, const PackedWeight& w, const Tensor& bias,
                  Tensor& y);

/// Computes codes i8 of the rows of x by XNNPACK's rule, and grids f32 [rows, 2]: the step fl(1 / factor) and
/// the zero point.
void xnnpack_codes(const Tensor& x, Tensor& codes, Tensor& grids);
/// Packs codes of up to 4 bits in blocks along K. `scale` f32 [outputs, blocks] is already rounded to bf16.
[[nodiscard]] PackedWeight xnnpack_weight(const Tensor& codes, const Tensor& scale);
/// Computes y f32 [rows, outputs]. `bias` f32 [outputs] may be undefined: 0.
void xnnpack_block_product(const Tensor& x, const Tensor& grids, const PackedWeight& w, const Tensor& bias,
                           Tensor& y);
/// Returns the i32 sums of each `count` consecutive codes, row by row.
[[nodiscard]] std::vector<std::int32_t> code_sums(const Tensor& codes, std::int64_t count);

}  // namespace fq::cpu
