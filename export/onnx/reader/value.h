#pragma once

/// What a name of an ONNX graph stands for while it is imported.

#include <cstdint>
#include <string>

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// The batch with which sizes are computed: a prime that no layer has for a size, so that it is known again
/// in whatever a graph computes from its shapes.
inline constexpr std::int64_t kImportBatch = 1000003;

/// The output of one of our nodes (or "input"), with its shape, batch first; or a constant.
struct ImportValue {
  std::string node;
  Shape shape;
  Tensor constant;

  [[nodiscard]] bool is_constant() const noexcept { return constant.defined(); }
};

}  // namespace fq::detail
