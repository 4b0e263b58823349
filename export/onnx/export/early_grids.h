#pragma once

/// Which values can be rounded before they are moved; not a public header.

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fakequant/export/onnx/export/calls.h"

namespace fq::detail {

/// Pooling and reshaping act on sums here; engines move codes. A value all of whose readers end on one grid
/// may be put on that grid at once.
class EarlyGrids {
 public:
  explicit EarlyGrids(const Calls& calls);

  /// The grid on which all readers of the value end; null when there is none, or it has codes already.
  [[nodiscard]] const QuantSpec* grid_of(const Variable& value) const;
  /// Whether an operator that moves codes reads the value.
  [[nodiscard]] bool is_moved(const Variable& value) const;
  /// The calls that read the value, in order.
  [[nodiscard]] const std::vector<const Call*>& readers(const Variable& value) const;

 private:
  [[nodiscard]] const QuantSpec* grid_at(const Call& reader) const;

  std::unordered_map<const Node*, std::vector<const Call*>> readers_;
  std::unordered_map<const Node*, const QuantSpec*> grids_;
};

}  // namespace fq::detail
