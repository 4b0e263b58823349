#pragma once

/// Moves that leave the channels, axis 1, where they are.

#include <string_view>
#include <vector>

#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

/// x after the moves one by one, each of which keeps axes 0 and 1: codes of one scale stay codes, sums of a
/// channel stay such sums (`record_move` would keep them for later), all else is read as floats. Places of a
/// TakeMove below 0 are for codes and floats alone.
[[nodiscard]] Variable move_beside_channels(std::string_view op, const Variable& x, std::vector<Move> moves);

}  // namespace fq::detail
