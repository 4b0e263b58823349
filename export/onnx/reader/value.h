#pragma once

/// What a name of an ONNX graph stands for while it is imported.

#include <cstdint>
#include <string>

#include "fakequant/core/tensor.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"

namespace fq::detail {

/// The output of one of our nodes (or "input"), with its shape; or a constant. Of the sizes of what depends
/// on the network's input one is a multiple of the batch.
struct ImportValue {
  std::string node;
  Shape shape;
  Tensor constant;
  bool learned = false;  ///< of a constant: made of what the file has been trained to
  bool fixed = false;    ///< a node that gives the same for every batch, [1, ..]

  [[nodiscard]] bool is_constant() const noexcept { return constant.defined(); }
  /// Whether it has no elements: no layer gives it, and a Concat alone may read it.
  [[nodiscard]] bool is_empty() const noexcept { return !is_constant() && node.empty() && !shape.empty(); }
};

[[nodiscard]] inline int rank_of(const ImportValue& x) { return static_cast<int>(x.shape.size()); }

}  // namespace fq::detail
