#pragma once

/// The codes and products of engines that round the rows of a linear layer as they run, on the host. The
/// operands are checked already: f32 [rows, columns] of x, i8 [outputs, columns] of codes, all row-major.

#include <cstdint>
#include <vector>

#include "fakequant/core/backend/cpu/memory/host_memory.h"
#include "fakequant/core/numerics/detail/ggml_formulas.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

/// A weight [outputs, columns] as the products in blocks read it, in strips of outputs (chain_kernels.h).
struct PackedWeight {
  std::int64_t outputs = 0, columns = 0, block = 0;
  cpu::ArenaVector<std::int8_t> bytes;     ///< codes for `chain_blocks`; empty: they are words
  cpu::ArenaVector<std::int16_t> words;    ///< codes for `chain_lanes`
  cpu::ArenaVector<float> scales;          ///< of each block
  cpu::ArenaVector<std::int32_t> offsets;  ///< ggml: added to the sum of a block by the offset of x
  std::vector<float> zero_terms;           ///< XNNPACK: added to an output per unit of the zero point of x
};

}  // namespace fq::detail

namespace fq::cpu {

using detail::PackedWeight;

/// Codes i8 of the shape of x, and steps f16 [rows, columns / 32]. `extreme_codes` f32 [rows, columns / 32]
/// has the code of each block's extreme; undefined for llama.cpp's. Whether a number was NaN.
bool ggml_codes(const Tensor& x, const Tensor& extreme_codes, detail::GgmlRounding rounding, Tensor& codes,
                Tensor& steps);

/// In the order of repacked buffers (`chain_blocks`; codes of 4 bits) or of plain ones (`chain_lanes`). Steps
/// are f32 numbers that f16 has, so that their products are exact.
[[nodiscard]] PackedWeight ggml_weight(const Tensor& codes, const Tensor& steps, bool repack);
/// y f32 [rows, outputs]; `bias` f32 [outputs], added to what the engine's product is, or undefined.
void ggml_product(const Tensor& x, const Tensor& x_steps, const PackedWeight& w, const Tensor& bias,
                  Tensor& y);

/// Codes i8 of the rows of x by XNNPACK's rule; grids f32 [rows, 2]: the step, which is fl(1 / factor), and
/// the zero point.
void xnnpack_codes(const Tensor& x, Tensor& codes, Tensor& grids);
/// Codes of up to 4 bits in blocks along K; `scale` f32 [outputs, blocks], rounded to bf16 already.
[[nodiscard]] PackedWeight xnnpack_weight(const Tensor& codes, const Tensor& scale);
/// y f32 [rows, outputs]; `bias` f32 [outputs], or undefined: 0.
void xnnpack_block_product(const Tensor& x, const Tensor& grids, const PackedWeight& w, const Tensor& bias,
                           Tensor& y);
/// The sums of `count` codes after another, i32, row by row.
[[nodiscard]] std::vector<std::int32_t> code_sums(const Tensor& codes, std::int64_t count);

}  // namespace fq::cpu
