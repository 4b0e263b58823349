#pragma once

/// Tables of ranges.

#include <string>
#include <vector>

#include "fakequant/train/calibration/calibration_report.h"

namespace fq::html {

/// All quantizers, a line each, to be sorted by the script of the page. Names link to #q<place>.
[[nodiscard]] std::string quantizer_table(const std::vector<QuantizerReport>& quantizers);

/// The range in force and those of the methods, a line each.
[[nodiscard]] std::string range_table(const QuantizerReport& quantizer);

}  // namespace fq::html
