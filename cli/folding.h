#pragma once

/// Folding a quantized network, and what that changes.

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>

#include "fakequant/cli/evaluation.h"

namespace fq::cli {

/// Codes of activations and scores on the same samples before and after.
struct FoldChange {
  std::int64_t codes = 0, different = 0;
  bool accuracy = false;  ///< whether there is one
  Evaluation before, after;
};

/// Runs both networks, which have the same quantizers, over the data.
[[nodiscard]] FoldChange compare(Network& before, Network& after, std::shared_ptr<const Dataset> data,
                                 std::int64_t batch, Output& output);
void print(const FoldChange& change, Output& output);
[[nodiscard]] nlohmann::ordered_json to_json(const FoldChange& change);

/// The number of batch norms that a network still has.
[[nodiscard]] std::size_t live_batch_norms(Network& network);
/// Folds those that can be, as an engine does, and says how many.
void fold_first(Network& network, Output& output);

}  // namespace fq::cli
