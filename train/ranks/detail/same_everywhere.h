#pragma once

/// Whether all ranks were started alike.

#include <nlohmann/json_fwd.hpp>

#include "fakequant/train/ranks/communicator.h"

namespace fq::detail {

/// Called by all ranks, each with the object that it goes by. Throws ArgumentError on all of them, naming the
/// first rank and the key that is not as on rank 0.
void check_same_everywhere(Communicator& ranks, const nlohmann::json& own);

}  // namespace fq::detail
