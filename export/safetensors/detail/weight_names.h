#pragma once

/// Matches tensors of a file with parameters and buffers of a model.

#include <map>
#include <string>
#include <vector>

#include "fakequant/export/safetensors/weights.h"

namespace fq::detail {

/// Names of the file for the names of a model.
struct WeightMatch {
  std::map<std::string, std::string> places;        ///< name in the model -> name in the file
  std::vector<std::string> missing;                 ///< names in the model without a tensor
  std::vector<std::string> extra;                   ///< names in the file that match no parameter
  std::vector<std::string> dropped;                 ///< names that the renames exclude
  std::vector<std::string> idle;                    ///< renames that match no name in the file
  std::map<std::string, std::string> renamed = {};  ///< name in the file -> renamed name
};

/// Matches names. `file` must not contain num_batches_tracked. The result depends only on the order of both
/// lists.
[[nodiscard]] WeightMatch match_weights(const std::vector<std::string>& model,
                                        const std::vector<std::string>& file,
                                        const std::vector<WeightRename>& renames);

/// Renames `name` with the pattern `from` and writes the result to `out`. Returns false if the pattern does
/// not match.
[[nodiscard]] bool rename_weight(const WeightRename& rename, const std::string& name, std::string& out);

}  // namespace fq::detail
