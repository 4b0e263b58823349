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

/// Calls `visit` with the logits and labels of each batch, in order. The processes of the run share the
/// batches. Throws Interrupted after a signal.
void visit_outputs(const Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                   const std::function<void(const Tensor& logits, const Tensor& labels)>& visit,
                   Output& output, const std::string& label);
/// Calls `visit` with the samples and outputs of each batch. This process evaluates all batches.
void visit_batches(const Network& network, std::shared_ptr<const Dataset> data, std::int64_t batch,
                   const std::function<void(const Batch&, const Variable&)>& visit, Output& output,
                   const std::string& label);
/// Calls `use` with the predictions of the network in parts (PredictionParts).
void predict_parts(const Network& network, const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                   const PredictionOptions& options, const std::function<void(const StateDict&)>& use,
                   Output& output, const std::string& label);

/// Runs two networks with the same quantizers over the data and returns their differences.
[[nodiscard]] FoldChange compare(const Network& before, const Network& after,
                                 const std::shared_ptr<const Dataset>& data, std::int64_t batch,
                                 Output& output);
void print(const FoldChange& change, Output& output);
[[nodiscard]] nlohmann::ordered_json to_json(const FoldChange& change);

/// Warns of quantizers that cannot work (quantizer_findings). Prints one line for each of the first three,
/// and the number of other findings.
void warn_of_quantizers(const Network& network, const std::shared_ptr<const Dataset>& data,
                        const std::string& command);
/// Warns if fine-tuning lowered the accuracy, or if the accuracy is close to chance.
void warn_of_loss(const SampleAccuracy& before, const SampleAccuracy& after, const std::string& command);
/// Warns if the accuracy of a calibrated network is close to chance.
void warn_near_chance(const SampleAccuracy& found, const Network& network, const std::string& command);
/// Warns before training if the network cannot be exported to ONNX for its target.
void warn_unless_exportable(const Network& network, const std::string& command);

}  // namespace fq::cli
