#pragma once

/// Causal attention a block of queries at a time.

#include <functional>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::detail {

/// Causal attention of some queries, which see as many keys as they are in front of the last one, and all
/// before those: of {q, k, v}.
using AttendHeads = std::function<Variable(const std::vector<Variable>& heads)>;

/// Queries [N, H, L, D] of one block.
constexpr std::int64_t kRowsTogether = 128;

/// `attend` of blocks of queries, each with the keys up to its last one, side by side: [N, H, L, E]. Blocks
/// end where the keys that they see are a multiple of `kRowsTogether`, and at the last query; there are as
/// many keys as queries, or more.
///
/// Backward keeps q, k and v alone and runs a block again when its gradients are made. `attend` must not
/// change anything, nor read what may change until then.
[[nodiscard]] Variable attend_by_rows(const Variable& q, const Variable& k, const Variable& v,
                                      const AttendHeads& attend);

}  // namespace fq::detail
