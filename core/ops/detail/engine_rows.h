#pragma once

/// Weights prepared for an engine that quantizes its input at run time, cached while the codes stay the same.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/core/quantized.h"

namespace fq::detail {

/// Data that an engine needs of a weight [N, K]. Unused members are empty.
struct EngineWeight {
  std::int64_t outputs = 0;
  EngineOperand operand;  ///< ggml, and XNNPACK's codes of up to 4 bits
  QuantizedTensor codes;  ///< XNNPACK's codes of more bits, and ONNX Runtime's
  Tensor sums;            ///< i32 [N], row sums of `codes`
};
/// Prepares codes that the engine supports (see `multiplies`).
[[nodiscard]] EngineWeight engine_weight(const QuantizedTensor& w, RowEngine engine);

/// Caches a prepared weight by the version of its codes and scales, which it keeps alive meanwhile. Each
/// layer has one. Thread safe.
class KeptEngineWeight {
 public:
  /// Returns the prepared weight, rebuilt if codes or scales differ from the last call or were written since.
  [[nodiscard]] std::shared_ptr<const EngineWeight> of(const QuantizedTensor& w, RowEngine engine);
  void forget();

 private:
  struct Version {
    Tensor tensor;
    std::uint64_t version = 0;

    explicit Version(const Tensor& of = {}) : tensor(of), version(of.version()) {}
    [[nodiscard]] bool is_of(const Tensor& other) const;
  };

  std::mutex mutex_;  // guards the cached weight
  Version codes_, scale_;
  RowEngine engine_ = {};
  std::shared_ptr<const EngineWeight> kept_;
};

/// Applies ops::engine_linear with a cached weight. A training step that learns w clears the cache instead,
/// because the codes will change.
[[nodiscard]] Variable engine_linear(const Variable& x, const Variable& w, const Variable& bias,
                                     RowEngine engine, KeptEngineWeight& kept);

// Products of rows that an engine rounds as it runs, each with that engine's bits.

enum class GgmlRounding : unsigned char;

/// Product y f32 [M, N] of x f32 [M, K], and the rounded x for backward: codes in blocks, or else values.
struct EngineRows {
  Tensor y;
  std::function<Tensor()> x;
  std::optional<QuantizedTensor> codes = {};
};

struct GgmlBlocks {
  Tensor codes;  ///< i8 [N, K]
  Tensor steps;  ///< f16 [N, K / 32]
};
/// Returns the blocks of a weight f32 [N, K] as files store them. `extreme_codes` f32 [N, K / 32] has the
/// code of the element with the largest magnitude of each block; undefined for llama.cpp's choice.
[[nodiscard]] GgmlBlocks ggml_weight_blocks(const Tensor& w, const Tensor& extreme_codes,
                                            GgmlRounding rounding);

/// Multiplies Q8_0 activations by a weight of 4 or 8 bits in blocks of 32 along K. With 4 bits and N
/// divisible by 8, sums have the order of repacked buffers.
[[nodiscard]] EngineRows ggml_rows(const Tensor& x, const EngineWeight& w, const Tensor& bias);
/// Multiplies rows of asymmetric int8 by a weight of up to 4 bits, in blocks or per channel (qb4w), or of
/// more bits per channel (qc8w).
[[nodiscard]] EngineRows xnnpack_rows(const Tensor& x, const EngineWeight& w, const Tensor& bias);
/// Applies DynamicQuantizeLinear and MatMulInteger, with a range for each of `ranges` equal parts of the
/// rows.
[[nodiscard]] EngineRows ort_rows(const Tensor& x, std::int64_t ranges, const EngineWeight& w,
                                  const Tensor& bias);

}  // namespace fq::detail
