#pragma once

/// Engines that round rows as they run, as fq::cpu has them, with the same bits. Nothing waits: a NaN is
/// reported when a value is next read back.

#include <string>

#include "fakequant/core/backend/engine_operand.h"

namespace fq::cuda {

void ggml_operand(const Tensor& codes, const Tensor& scales, bool in_lanes, fq::detail::EngineOperand& out);
void xnnpack_operand(const Tensor& codes, const Tensor& scales, fq::detail::EngineOperand& out);
void ggml_blocks(const Tensor& x, const Tensor& extreme_codes, fq::detail::GgmlRounding rounding,
                 const std::string& nan_text, Tensor& codes, Tensor& steps);
void xnnpack_rows(const Tensor& x, const std::string& nan_text, Tensor& codes, Tensor& grids);
void ggml_product(const Tensor& x, const Tensor& steps, const fq::detail::EngineOperand& w,
                  const Tensor& bias, Tensor& y);
void xnnpack_block_product(const Tensor& x, const Tensor& grids, const fq::detail::EngineOperand& w,
                           const Tensor& bias, Tensor& y);
void xnnpack_values(const Tensor& codes, const Tensor& grids, Tensor& values);
void xnnpack_channel_sums(const Tensor& sums, const Tensor& weights, const Tensor& grids, const Tensor& scale,
                          const Tensor& bias, Tensor& y);

}  // namespace fq::cuda
