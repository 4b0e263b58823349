#pragma once

/// Evaluates a network on a data set in batches: outputs, changes by folding, and warnings about the result.

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

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

/// Runs both networks, which have the same quantizers, over the data.
[[nodiscard]] FoldChange compare(const Network& before, const Network& after,
                                 const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                                 Output& output);
void print(const FoldChange& change, Output& output);
[[nodiscard]] nlohmann::ordered_json to_json(const FoldChange& change);

/// Warns of quantizers that cannot work (quantizer_findings): one line for each of the first three, and the
/// number of others.
void warn_of_quantizers(const Network& network, const std::shared_ptr<const Dataset>& data,
                        const std::string& command);
/// Warns if fine-tuning lowered the accuracy, or if the accuracy is near chance.
void warn_of_loss(const SampleAccuracy& before, const SampleAccuracy& after, const std::string& command);
/// Warns if a calibrated network is near chance.
void warn_near_chance(const SampleAccuracy& found, const Network& network, const std::string& command);
/// Warns if the network cannot be exported to ONNX for its target: the user should know before training.
void warn_unless_exportable(const Network& network, const std::string& command);

}  // namespace fq::cli
