#pragma once

/// Which values can be rounded before they are moved.

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fakequant/layers/model/detail/calls.h"

namespace fq::detail {

/// Integers that are bytes in a file, and in the engine: of up to 8 bits, but for 4, which have a type of
/// their own.
[[nodiscard]] bool has_byte_codes(const Format& format);

/// Pooling, reshaping, transposing, cutting and joining act on sums here; engines move codes. A value all of
/// whose readers end on one grid may be put on that grid at once. With `relu_on_codes` a ReLU may lie
/// between, if the grid's codes are bytes: it is the maximum of the code and 0.
class EarlyGrids {
 public:
  EarlyGrids(const Calls& calls, bool relu_on_codes);

  /// The grid on which all readers of the value end; null when there is none, or it has codes already.
  [[nodiscard]] const Grid* grid_of(const Variable& value) const;
  /// Whether a ReLU lies between the value and its grid on all ways.
  [[nodiscard]] bool is_cut(const Variable& value) const;
  /// The grid that the value has to be put on before it is read: `grid_of` of what is moved or read twice.
  [[nodiscard]] const Grid* early_grid_of(const Variable& value) const;
  /// The calls that read the value, in order.
  [[nodiscard]] const std::vector<const Call*>& readers(const Variable& value) const;

 private:
  [[nodiscard]] const Grid* grid_at(const Call& reader) const;

  std::unordered_map<const Node*, std::vector<const Call*>> readers_;
  std::unordered_map<const Node*, const Grid*> grids_;
  bool relu_on_codes_;
};

}  // namespace fq::detail
