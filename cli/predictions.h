#pragma once

/// What a network answers on a data set.

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>

#include "fakequant/cli/evaluation.h"
#include "fakequant/core/io/state_dict.h"

namespace fq::cli {

struct PredictionOptions {
  std::int64_t batch = 64;
  bool inputs = false;  ///< with dataset x, what the network read
  bool codes = false;   ///< with codes/<quantizer> of each activation
  std::int64_t part_bytes = std::numeric_limits<std::int64_t>::max();  ///< a part ends after so many
};

/// Calls `use` with logits [N, classes] and what `options` ask for, all in logical order; in parts, one after
/// another. With codes, attribute `batch` is the samples in a batch, and `batch_axes` has the axis of the
/// samples in codes where that is not axis 0; null: the codes do not depend on the samples, one copy is
/// stored. Stops with Interrupted after a signal.
void predict_parts(Network& network, std::shared_ptr<const Dataset> data, const PredictionOptions& options,
                   const std::function<void(const StateDict&)>& use, Output& output,
                   const std::string& label);

}  // namespace fq::cli
