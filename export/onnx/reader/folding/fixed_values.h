#pragma once

/// Values of a graph that do not depend on its input.

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/input.h"
#include "fakequant/export/onnx/reader/patterns/graph_view.h"

namespace fq::detail {

/// Returns the limit of elements for computed values and for parameters. It depends on the size of the file.
[[nodiscard]] std::int64_t element_limit(const OnnxModel& model);

/// Constants of a graph by name.
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
