#pragma once

/// Running a network over a data set, batch by batch, in evaluation mode.

#include <functional>
#include <memory>

#include "fakequant/cli/tables/output.h"
#include "fakequant/core/variable.h"
#include "fakequant/network/evaluation.h"
#include "fakequant/network/qat.h"

namespace fq::cli {

/// Calls `visit` with the logits and the labels of each batch, in order, which the processes of the run share
/// out. Stops with Interrupted after a signal.
void for_each_output(const Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                     const std::function<void(const Tensor& logits, const Tensor& labels)>& visit,
                     Output& output, const std::string& label);
/// The same with the samples of each batch, by this process alone.
void for_each_batch(const Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                    const std::function<void(const Batch&, const Variable&)>& visit, Output& output,
                    const std::string& label);
/// Calls `use` with the predictions of the network in parts (PredictionParts).
void predict_parts(const Network& network, const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                   const PredictionOptions& options, const std::function<void(const StateDict&)>& use,
                   Output& output, const std::string& label);

}  // namespace fq::cli
