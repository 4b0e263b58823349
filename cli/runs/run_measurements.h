#pragma once

/// Measurements of a run in addition to loss and accuracy: time by phase, ranges, clipping, confused classes.

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "fakequant/cli/training.h"
#include "fakequant/core/profile.h"
#include "fakequant/network/network.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

/// Returns milliseconds by kind of work: "forward", "backward", "quantize", "optimizer", "waiting for data",
/// "other".
[[nodiscard]] nlohmann::ordered_json phase_times(const Profile& profile);
/// Returns training samples for the measurement of clipping; an undefined tensor for a network without
/// quantizers.
[[nodiscard]] Tensor some_inputs(const Run& run);
/// Returns for each enabled quantizer with a range {"amax": largest range, "clipped": share of clipped
/// elements on `x`}. Omits "clipped" for weights, for uncalibrated quantizers, and if `x` is undefined.
[[nodiscard]] nlohmann::ordered_json quantizer_ranges(Module& model, const Tensor& x);

struct ClassExamples {
  /// "samples", "names", "confusion" (counts by class and prediction) and "worst" ([{"row", "label",
  /// "answer", "probability"}]), for the record of a run (report/detail/runs/run_record.h).
  nlohmann::ordered_json counts;
  std::map<std::int64_t, std::string>
      shown;  ///< HTML of the worst samples by their row; none where they are no images
};

/// Evaluates the samples `rows`, in ascending order. `data` has a class for each sample.
[[nodiscard]] ClassExamples class_examples(const Network& network, const std::shared_ptr<const Dataset>& data,
                                           const std::vector<std::int64_t>& rows, std::int64_t batch);

}  // namespace fq::cli
