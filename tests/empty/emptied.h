#pragma once

/// Golden cases with nothing along an axis: what the test of empty inputs tries.

#include <string>
#include <vector>

#include "case.h"

namespace fq::empty {

/// A case, and what was emptied in it: "axis 0 of x", "axis -1 of all", "amax", "block_size".
struct Emptied {
  golden::Case changed;
  std::string what;
};

/// The case with each axis of each tensor of size 0, alone and together with that axis of all tensors,
/// counted from the back; with each tensor and all of them of shape [0]; with each number 0 and each list
/// empty.
[[nodiscard]] std::vector<Emptied> emptied(const golden::Case& c);

/// Those of the cases that differ in more than their values, at most `most`: in the shapes or types of their
/// tensors, or in what they name.
[[nodiscard]] std::vector<golden::Case> unlike(const std::vector<golden::Case>& cases, std::size_t most);

}  // namespace fq::empty
