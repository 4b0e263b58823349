#pragma once

/// Sections of the calibration page: tables of ranges, and the quantization plan.

#include <string>
#include <vector>

#include "fakequant/train/calibration/calibration_report.h"
#include "fakequant/train/sensitivity/auto_quantize.h"

namespace fq::html {

/// Returns a table of all quantizers, which the script of the page sorts. Names link to #q<index>.
[[nodiscard]] std::string quantizer_table(const std::vector<QuantizerReport>& quantizers);

/// Returns a table of the range in force and the ranges of the methods.
[[nodiscard]] std::string range_table(const QuantizerReport& quantizer);

/// Returns the plan: its request and result, a drawing of the layers (width: weights, height: bits), and a
/// table of the cost of each format in each layer.
[[nodiscard]] std::string plan_section(const QuantizationPlan& plan);

}  // namespace fq::html
