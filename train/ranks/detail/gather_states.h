#pragma once

/// What ranks give each other where they share out a data set.

#include <string_view>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/data/loader.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// Throws ArgumentError, opened by `function`, unless a loader of these options makes the rank's part of
/// batches of which each rank has one in turn.
void check_share(const LoaderOptions& loader, const Communicator& ranks, std::string_view function);

/// Called by all ranks: the states of all of them in their order, tensors row-major on the CPU, with the bits
/// that their ranks gave.
[[nodiscard]] std::vector<StateDict> gather_states(Communicator& ranks, const StateDict& own);

}  // namespace fq::detail
