#pragma once

/// Sections of the calibration page: tables of ranges, and the quantization plan.

#include <string>
#include <vector>

#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/sensitivity/plan.h"

namespace fq::html {

/// All quantizers, a line each, to be sorted by the script of the page. Names link to #q<place>.
[[nodiscard]] std::string quantizer_table(const std::vector<QuantizerReport>& quantizers);

/// The range in force and those of the methods, a line each.
[[nodiscard]] std::string range_table(const QuantizerReport& quantizer);

/// What was asked for and what came of it, a drawing of the layers (as wide as their weights, as high as
/// their bits) and a table of what each format costs each, which sorts.
[[nodiscard]] std::string plan_section(const QuantizationPlan& plan);

}  // namespace fq::html
