#pragma once

/// Constant folding: what operators give whose inputs are fixed.

#include <cstdint>
#include <optional>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/export/onnx/reader/node_reader.h"

namespace fq::detail {

/// Elements that folding may still make: no graph makes it allocate without bound.
struct FoldBudget {
  std::int64_t left = 0;
  void take(const NodeReader& node, std::int64_t count);
  /// Takes the elements of a tensor; their number may have more than 64 bits.
  void take(const NodeReader& node, const Shape& shape);
};

/// Computes the node; undefined inputs are those left out. None for operators that it does not know.
/// Integers are computed as doubles, exactly up to 2^53. Throws ArgumentError for inputs that do not fit.
[[nodiscard]] std::optional<Tensor> fold(const NodeReader& node, const std::vector<Tensor>& inputs,
                                         FoldBudget& budget);

/// The elements of a list of whole numbers or of one number. Throws ArgumentError for another type or rank.
[[nodiscard]] std::vector<std::int64_t> integers_of(const NodeReader& node, const Tensor& tensor);
/// Converts computed doubles to the type of the node's output. Integers lose their fraction and wrap.
[[nodiscard]] Tensor of_type(const Tensor& computed, DType type);
/// What the operator Shape gives of a value of that shape: all of it, or from 'start' to 'end'.
[[nodiscard]] Tensor shape_tensor(const NodeReader& node, const Shape& shape);
/// `axes` from the front; throws ArgumentError when one is out of range or there twice.
[[nodiscard]] std::vector<int> axes_of(const NodeReader& node, const std::vector<std::int64_t>& axes,
                                       int rank);

}  // namespace fq::detail
