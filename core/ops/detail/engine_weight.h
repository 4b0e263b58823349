#pragma once

/// A weight as an engine that rounds its input multiplies it, made once for codes that stay as they are.

#include <cstdint>
#include <memory>
#include <mutex>

#include "fakequant/core/backend/kernel_arguments.h"
#include "fakequant/core/ops/engines/engine_linear.h"
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

}  // namespace fq::detail
