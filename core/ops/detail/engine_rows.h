#pragma once

/// Products of rows that an engine rounds as it runs, each with that engine's bits.

#include <functional>
#include <optional>

#include "fakequant/core/ops/detail/engine_weight.h"

namespace fq::detail {

enum class GgmlRounding : unsigned char;

/// y f32 [M, N] of x f32 [M, K], and what x was rounded to, for backward: codes in blocks, or else values.
struct EngineRows {
  Tensor y;
  std::function<Tensor()> x;
  std::optional<QuantizedTensor> codes = {};
};

struct GgmlBlocks {
  Tensor codes;  ///< i8 [N, K]
  Tensor steps;  ///< f16 [N, K / 32]
};
/// The blocks of a weight f32 [N, K] as files have them. `extreme_codes` f32 [N, K / 32] has the code of each
/// block's number of the largest magnitude; undefined for llama.cpp's.
[[nodiscard]] GgmlBlocks ggml_weight_blocks(const Tensor& w, const Tensor& extreme_codes,
                                            GgmlRounding rounding);

/// Q8_0 activations and a weight of 4 or 8 bits in blocks of 32 along K; 4 bits in the order of repacked
/// buffers where 8 divides N.
[[nodiscard]] EngineRows ggml_rows(const Tensor& x, const EngineWeight& w, const Tensor& bias);
/// Rows of asymmetric int8 and a weight of up to 4 bits, in blocks or per channel (qb4w), or of more bits per
/// channel (qc8w).
[[nodiscard]] EngineRows xnnpack_rows(const Tensor& x, const EngineWeight& w, const Tensor& bias);
/// DynamicQuantizeLinear and MatMulInteger, with a range for each of `ranges` equal parts of the rows.
[[nodiscard]] EngineRows ort_rows(const Tensor& x, std::int64_t ranges, const EngineWeight& w,
                                  const Tensor& bias);

}  // namespace fq::detail
