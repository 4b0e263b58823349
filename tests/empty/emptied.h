#pragma once

/// Golden cases with an axis of size 0: inputs of the test of empty tensors.

#include <string>
#include <vector>

#include "case.h"

namespace fq::empty {

/// A case with an emptied argument: "axis 0 of x", "axis -1 of all", "amax", "block_size".
struct Emptied {
  golden::Case changed;
  std::string what;
};

/// The case with each axis of each tensor of size 0, alone and together with that axis of all tensors,
/// counted from the back; with each tensor and all of them of shape [0]; with each number 0 and each list
/// empty.
[[nodiscard]] std::vector<Emptied> emptied(const golden::Case& c);

/// At most `most` cases that differ in more than their values: in shapes or types of their
/// tensors, or in names of arguments.
[[nodiscard]] std::vector<golden::Case> unlike(const std::vector<golden::Case>& cases, std::size_t most);

}  // namespace fq::empty
