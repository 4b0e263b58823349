#pragma once

/// Finds values that can be rounded before an operator moves them.

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "fakequant/layers/model/detail/calls.h"

namespace fq::detail {

/// Whether files and engines store the codes as bytes: integers of up to 8 bits, except 4 bits, which have
/// their own type.
[[nodiscard]] bool has_byte_codes(const Format& format);

/// Pooling, reshaping, transposing, slicing and concatenation act on sums here, but engines move codes. A
/// value whose readers all end on one grid may be rounded to that grid at once. With `relu_on_codes` a ReLU
/// may lie between, if the grid's codes are bytes: it is the maximum of the code and 0.
class EarlyGrids {
 public:
  EarlyGrids(const Calls& calls, bool relu_on_codes);

  /// Returns the grid on which all readers of the value end. Null if there is none, or if the value has codes
  /// already.
  [[nodiscard]] const Grid* shared_grid(const Variable& value) const;
  /// Whether every path from the value to its grid has a ReLU.
  [[nodiscard]] bool is_cut(const Variable& value) const;
  /// Returns `shared_grid` for a value that is moved or read twice, else null. Such a value must be rounded
  /// before it is read.
  [[nodiscard]] const Grid* early_grid(const Variable& value) const;
  /// Returns the calls that read the value, in order.
  [[nodiscard]] const std::vector<const Call*>& readers(const Variable& value) const;

 private:
  [[nodiscard]] const Grid* call_grid(const Call& reader) const;

  std::unordered_map<const Node*, std::vector<const Call*>> readers_;
  std::unordered_map<const Node*, const Grid*> grids_;
  bool relu_on_codes_;
};

}  // namespace fq::detail
