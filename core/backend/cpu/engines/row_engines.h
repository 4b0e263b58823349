#pragma once

/// The entries of detail::Kernels for engines that round rows as they run (engine_products.h).

#include <string>

#include "fakequant/core/backend/engine_operand.h"

namespace fq::cpu {

/// Of codes i8 [outputs, columns] and scales f32 [outputs, blocks]. `in_lanes`: in the order of plain
/// buffers.
void ggml_operand(const Tensor& codes, const Tensor& scales, bool in_lanes, detail::EngineOperand& out);
void xnnpack_operand(const Tensor& codes, const Tensor& scales, detail::EngineOperand& out);

/// x f32 [rows, columns] as codes i8 and steps f16 [rows, columns / 32], or grids f32 [rows, 2]. Throw
/// NumericError with that text for a NaN; ggml_blocks takes it for 0 where the text is empty.
/// `extreme_codes` f32 [rows, columns / 32] has the code of each block's extreme; undefined for llama.cpp's.
void ggml_blocks(const Tensor& x, const Tensor& extreme_codes, detail::GgmlRounding rounding,
                 const std::string& nan_text, Tensor& codes, Tensor& steps);
void xnnpack_rows(const Tensor& x, const std::string& nan_text, Tensor& codes, Tensor& grids);

/// y f32 [rows, outputs]; steps f32; `bias` f32 [outputs], added at last, or undefined.
void ggml_product(const Tensor& x, const Tensor& steps, const detail::EngineOperand& w, const Tensor& bias,
                  Tensor& y);
void xnnpack_block_product(const Tensor& x, const Tensor& grids, const detail::EngineOperand& w,
                           const Tensor& bias, Tensor& y);

}  // namespace fq::cpu
