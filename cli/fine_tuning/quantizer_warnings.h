#pragma once

/// Quantizers that cannot be right, told with what to do.

#include <memory>
#include <string>

#include "fakequant/network/network.h"
#include "fakequant/train/data/dataset.h"

namespace fq::cli {

/// Warns of the faults of quantizers (train/calibration/quantizer_findings.h) on 64 images of `data`, which
/// may be null: a line each for the first three, and how many others there are. Nothing where ranges are
/// missing.
void warn_of_quantizers(const Network& network, const std::shared_ptr<const Dataset>& data,
                        const std::string& command);

}  // namespace fq::cli
