#pragma once

/// Constant folding: computes operators with constant inputs.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fakequant/core/tensor.h"
#include "fakequant/export/onnx/reader/input.h"
#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/export/onnx/reader/patterns/graph_view.h"

namespace fq::detail {

/// Remaining number of elements that folding may create. It limits the memory for untrusted graphs.
struct FoldBudget {
  std::int64_t left = 0;
  void take(const NodeReader& node, std::int64_t count);
  /// Counts the elements of a tensor. Their number may exceed 64 bits.
  void take(const NodeReader& node, const Shape& shape);
};

/// Computes the node. Undefined inputs are missing inputs. Returns no value for unknown operators. Integers
/// are computed as doubles, exact up to 2^53. Throws ArgumentError for invalid inputs.
[[nodiscard]] std::optional<Tensor> fold(const NodeReader& node, const std::vector<Tensor>& inputs,
                                         FoldBudget& budget);

/// Returns the elements of a list of integers or of a single integer. Throws ArgumentError for another type
/// or rank.
[[nodiscard]] std::vector<std::int64_t> integer_list(const NodeReader& node, const Tensor& tensor);
/// Converts computed doubles to the type of the node's output. Integers lose their fraction and wrap.
[[nodiscard]] Tensor convert_type(const Tensor& computed, DType type);
/// Returns the output of the operator Shape: the whole shape, or the sizes from 'start' to 'end'.
[[nodiscard]] Tensor shape_tensor(const NodeReader& node, const Shape& shape);
/// Returns `axes` counted from the front. Throws ArgumentError if an axis is out of range or a duplicate.
[[nodiscard]] std::vector<int> normalized_axes(const NodeReader& node, const std::vector<std::int64_t>& axes,
                                               int rank);

/// One node and the values of its inputs.
struct Fold {
  const NodeReader& node;
  const std::vector<Tensor>& inputs;
  FoldBudget& budget;

  const Tensor& input(std::size_t i) const {
    node.check(i < inputs.size() && inputs[i].defined(), "its input {} is missing", i);
    return inputs[i];
  }
  bool has(std::size_t i) const { return i < inputs.size() && inputs[i].defined(); }
  /// Returns the integers of an attribute, or of the input that replaced it in later opsets.
  std::vector<std::int64_t> list(const char* attribute, std::size_t i) const {
    return has(i) ? integer_list(node, inputs[i]) : node.integers(attribute);
  }
};

/// Converts to f32 or f64, the types that operators compute in.
[[nodiscard]] inline Tensor computable(const Tensor& x) {
  return x.dtype() == DType::f32 ? x : x.to(DType::f64);
}

/// Returns the indices along an axis that a slice takes.
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
/// Throws ArgumentError if the number of parts of a Split differs from its number of outputs.
void check_parts(const NodeReader& node, std::int64_t parts);
/// Returns one part for each output of the node.
[[nodiscard]] std::vector<Tensor> fold_split(const Fold& f, std::size_t parts);
[[nodiscard]] Tensor fold_squeeze(const Fold& f);
[[nodiscard]] Tensor fold_flatten(const Fold& f);

/// Computes the node's reduction.
[[nodiscard]] Tensor fold_reduce(const Fold& f);
[[nodiscard]] Tensor fold_matmul(const Fold& f);
[[nodiscard]] Tensor fold_softmax(const Fold& f);
[[nodiscard]] Tensor fold_cumsum(const Fold& f);
/// Pads with a constant, with the edge, or with mirrored or circular elements.
[[nodiscard]] Tensor fold_pad(const Fold& f);

/// Returns the limit of elements for computed values and for parameters. It depends on the size of the file.
[[nodiscard]] std::int64_t element_limit(const OnnxModel& model);

/// Values of a graph that do not depend on its input, by name.
class FixedValues {
 public:
  explicit FixedValues(const OnnxModel& model);

  /// Adds an input that is the same for every sample. Its shape still has the batch.
  void add_input(const std::string& name, const GraphInputs::Fixed& input) {
    add(name, input.value, false);
    batch_shapes_.emplace(name, input.of_batch);
  }

  [[nodiscard]] const Constants& values() const noexcept { return values_; }
  [[nodiscard]] const Tensor* find(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : &found->second;
  }
  /// Whether a value was trained, or computed from trained values.
  [[nodiscard]] bool is_learned(const std::string& name) const { return learned_.contains(name); }
  void add(const std::string& name, const Tensor& value, bool learned) {
    values_.emplace(name, value);
    if (learned) learned_.insert(name);
  }
  /// Computes the node if its inputs are constant. Returns whether its outputs are now known.
  bool fold_node(const OnnxNode& node);

 private:
  FoldBudget budget_;
  Constants values_;
  std::map<std::string, Shape> batch_shapes_;
  std::set<std::string> learned_;
};

}  // namespace fq::detail
