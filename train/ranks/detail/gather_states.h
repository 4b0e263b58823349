#pragma once

/// What ranks give each other: whole states.

#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// Called by all ranks: the states of all of them in their order, tensors row-major on the CPU, with the bits
/// that their ranks gave.
[[nodiscard]] std::vector<StateDict> gather_states(Communicator& ranks, const StateDict& own);

}  // namespace fq::detail
