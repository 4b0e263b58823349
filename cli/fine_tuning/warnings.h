#pragma once

/// Warnings about a network after calibration or fine-tuning.

#include <memory>
#include <string>

#include "fakequant/network/qat.h"

namespace fq::cli {

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
