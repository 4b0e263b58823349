#pragma once

/// Collective operations on states and settings of ranks.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {
class Module;
}

namespace fq::detail {

/// Called by all ranks: the states of all of them in their order, tensors row-major on the CPU, with the bits
/// that their ranks gave.
[[nodiscard]] std::vector<StateDict> gather_states(Communicator& ranks, const StateDict& own);

/// Called by all ranks, each with the object that it goes by. Throws ArgumentError on all of them, naming the
/// first rank and the key that is not as on rank 0.
void check_same_everywhere(Communicator& ranks, const nlohmann::json& own);
/// Of the values of its parameters and buffers.
[[nodiscard]] std::uint32_t fingerprint_of(Module& model);

}  // namespace fq::detail
