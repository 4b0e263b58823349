#pragma once

/// Sensitivities and plans as people read them.

#include <string>

#include "fakequant/train/sensitivity/plan.h"
#include "fakequant/train/sensitivity/sensitivity.h"

namespace fq::cli {

[[nodiscard]] std::string sensitivity_table(const SensitivityReport& report);
/// The layers, those that cost most first, then the sums.
[[nodiscard]] std::string plan_table(const QuantizationPlan& plan);

}  // namespace fq::cli
