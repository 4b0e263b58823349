#pragma once

/// A calibration report for people and machines.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fakequant/train/calibration/calibration_report.h"

namespace fq::cli {

/// A line for each quantizer, numbers that are not known as "-", and below why they are not.
[[nodiscard]] std::string calibration_table(const std::vector<QuantizerReport>& quantizers);

/// docs/formats.md has the keys.
[[nodiscard]] nlohmann::ordered_json calibration_json(const std::vector<QuantizerReport>& quantizers);

}  // namespace fq::cli
