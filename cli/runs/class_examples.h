#pragma once

/// Which classes a network takes for which, and the samples that it is most wrong about.

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/network/network.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

struct ClassExamples {
  /// "samples", "names", "confusion" (counts by class and answer) and "worst" ([{"row", "label", "answer",
  /// "probability"}]), for the record of a run (report/detail/runs/run_record.h).
  nlohmann::ordered_json counts;
  std::map<std::int64_t, std::string>
      shown;  ///< HTML of the worst samples by their row; none where they are no images
};

/// Of those samples of `data`, ascending, which has a class for each.
[[nodiscard]] ClassExamples class_examples(const Network& network, const std::shared_ptr<const Dataset>& data,
                                           const std::vector<std::int64_t>& rows, std::int64_t batch);

}  // namespace fq::cli
