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

}  // namespace fq::cli
