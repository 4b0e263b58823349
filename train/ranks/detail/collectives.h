#pragma once

/// Collective operations on states and settings.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "fakequant/core/io/state_dict.h"
#include "fakequant/train/ranks/communicator.h"

namespace fq {
class Module;
}

namespace fq::detail {

/// Returns the states of all ranks in rank order, tensors row-major on the CPU with unchanged bits. All ranks
/// must call it.
[[nodiscard]] std::vector<StateDict> gather_states(Communicator& ranks, const StateDict& own);

/// Compares the settings `own` of all ranks. Throws ArgumentError on all ranks if they differ, with the first
/// rank and key that differ from rank 0. All ranks must call it.
void check_same_everywhere(Communicator& ranks, const nlohmann::json& own);
/// Returns a checksum of the model's parameters and buffers.
[[nodiscard]] std::uint32_t model_fingerprint(Module& model);

}  // namespace fq::detail
