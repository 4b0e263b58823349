#pragma once

/// Whether all ranks were started alike.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "fakequant/train/ranks/communicator.h"

namespace fq {
class Module;
}

namespace fq::detail {

/// Called by all ranks, each with the object that it goes by. Throws ArgumentError on all of them, naming the
/// first rank and the key that is not as on rank 0.
void check_same_everywhere(Communicator& ranks, const nlohmann::json& own);
/// Of the values of its parameters and buffers.
[[nodiscard]] std::uint32_t fingerprint_of(Module& model);

}  // namespace fq::detail
