#pragma once

/// Constant folding of operators that move elements and compute nothing.

#include <vector>

#include "fakequant/export/onnx/reader/folding/fold.h"

namespace fq::detail {

/// One node and what its inputs are.
struct Fold {
  const NodeReader& node;
  const std::vector<Tensor>& inputs;
  FoldBudget& budget;

  const Tensor& input(std::size_t i) const {
    node.check(i < inputs.size() && inputs[i].defined(), "its input {} is missing", i);
    return inputs[i];
  }
  bool has(std::size_t i) const { return i < inputs.size() && inputs[i].defined(); }
  /// The whole numbers of an attribute, or of the input that replaced it in later versions.
  std::vector<std::int64_t> list(const char* attribute, std::size_t i) const {
    return has(i) ? integers_of(node, inputs[i]) : node.integers(attribute);
  }
};

/// As one of the two types that operators compute in.
[[nodiscard]] inline Tensor computable(const Tensor& x) {
  return x.dtype() == DType::f32 ? x : x.to(DType::f64);
}

/// The places of an axis that a slice takes.
[[nodiscard]] std::vector<std::int64_t> slice_picks(const NodeReader& node, std::int64_t begin,
                                                    std::int64_t end, std::int64_t step, std::int64_t size);
[[nodiscard]] Tensor fold_gather(const Fold& f);
[[nodiscard]] Tensor fold_slice(const Fold& f);
[[nodiscard]] Tensor fold_scatter_nd(const Fold& f);
[[nodiscard]] Tensor fold_tile(const Fold& f);
[[nodiscard]] Tensor fold_concat(const Fold& f);
[[nodiscard]] Tensor fold_transpose(const Fold& f);
[[nodiscard]] Tensor fold_reshape(const Fold& f);
[[nodiscard]] Tensor fold_unsqueeze(const Fold& f);
/// Throws ArgumentError if a Split names another number of parts than it has outputs.
void check_parts(const NodeReader& node, std::int64_t parts);
/// As many parts as the node has outputs.
[[nodiscard]] std::vector<Tensor> fold_split(const Fold& f, std::size_t parts);
[[nodiscard]] Tensor fold_squeeze(const Fold& f);
[[nodiscard]] Tensor fold_flatten(const Fold& f);

}  // namespace fq::detail
