#pragma once

/// Changes of codes and scores by folding.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "fakequant/cli/evaluation.h"
#include "fakequant/network/evaluation.h"

namespace fq::cli {

/// Runs both networks, which have the same quantizers, over the data.
[[nodiscard]] FoldChange compare(const Network& before, const Network& after,
                                 const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                                 Output& output);
void print(const FoldChange& change, Output& output);
[[nodiscard]] nlohmann::ordered_json to_json(const FoldChange& change);

/// Folds live batch norms, as an engine does, and prints their number.
void fold_first(Network& network, Output& output);

}  // namespace fq::cli
