#pragma once

/// A weight as an engine that rounds its input multiplies it, made once for codes that stay as they are.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/core/quantized.h"

namespace fq::detail {

/// What each engine needs of a weight [N, K]; the rest is empty.
struct EngineWeight {
  std::int64_t outputs = 0;
  EngineOperand operand;  ///< ggml, and XNNPACK's codes of up to 4 bits
  QuantizedTensor codes;  ///< XNNPACK's codes of more bits, and ONNX Runtime's
  Tensor sums;            ///< with `codes`: i32 [N], of its rows
};
/// Of codes that the engine multiplies (`multiplies`).
[[nodiscard]] EngineWeight engine_weight(const QuantizedTensor& w, RowEngine engine);

/// Keeps it by the version of codes and scales, which it holds meanwhile: a layer has one. Safe to ask from
/// several threads.
class KeptEngineWeight {
 public:
  /// Made anew where codes or scales are others than at the last call, or were written to since.
  [[nodiscard]] std::shared_ptr<const EngineWeight> of(const QuantizedTensor& w, RowEngine engine);
  void forget();

 private:
  struct Version {
    Tensor tensor;
    std::uint64_t version = 0;

    explicit Version(const Tensor& of = {}) : tensor(of), version(of.version()) {}
    [[nodiscard]] bool is_of(const Tensor& other) const;
  };

  std::mutex mutex_;  // guards what is kept
  Version codes_, scale_;
  RowEngine engine_ = {};
  std::shared_ptr<const EngineWeight> kept_;
};

/// As ops::engine_linear; a step that learns w forgets what is kept instead, since the codes will be others.
[[nodiscard]] Variable engine_linear(const Variable& x, const Variable& w, const Variable& bias,
                                     RowEngine engine, KeptEngineWeight& kept);

// Products of rows that an engine rounds as it runs, each with that engine's bits.

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
