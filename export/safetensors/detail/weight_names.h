#pragma once

/// Which tensor of a file is which parameter or buffer of a model.

#include <map>
#include <string>
#include <vector>

#include "fakequant/export/safetensors/weights.h"

namespace fq::detail {

/// Names of a file by names of a model, for all that have one each.
struct WeightMatch {
  std::map<std::string, std::string> places;        ///< name in the model -> name in the file
  std::vector<std::string> missing;                 ///< names in the model without a tensor
  std::vector<std::string> extra;                   ///< names in the file without a place
  std::vector<std::string> dropped;                 ///< names that renames leave out
  std::vector<std::string> idle;                    ///< renames that fit no name in the file
  std::map<std::string, std::string> renamed = {};  ///< name in the file -> what a rename made of it
};

/// `file` without num_batches_tracked. Deterministic, by the order of both lists.
[[nodiscard]] WeightMatch match_weights(const std::vector<std::string>& model,
                                        const std::vector<std::string>& file,
                                        const std::vector<WeightRename>& renames);

/// What `to` becomes for `name`, whose pattern is `from`; false where it does not match.
[[nodiscard]] bool rename_weight(const WeightRename& rename, const std::string& name, std::string& out);

}  // namespace fq::detail
