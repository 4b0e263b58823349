#pragma once

/// What the operators that move elements, or mix those of an axis, share.

#include <string_view>

#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::detail {

/// Records the move of x under the operator's name: codes of one scale stay codes, sums stay sums,
/// integers integers, all else is read as floats. `x` is defined and the move fits its shape.
[[nodiscard]] Variable record_move(std::string_view op, const Variable& x, const Move& move,
                                   Attributes attributes);
/// Records the mix of x along an axis; in x's layout.
[[nodiscard]] Variable record_mix(std::string_view op, const Floats& x, int axis, AxisMix mix);
/// Windows of adaptive pooling, which cover an axis of `from` elements evenly, with the shares of their
/// means.
[[nodiscard]] AxisMix adaptive_shares(std::int64_t from, std::int64_t to);

}  // namespace fq::detail
