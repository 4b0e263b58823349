#pragma once

/// A quantization plan in a page.

#include <string>

#include "fakequant/train/sensitivity/plan.h"

namespace fq::html {

/// What was asked for and what came of it, a drawing of the layers (as wide as their weights, as high as
/// their bits) and a table of what each format costs each, which sorts.
[[nodiscard]] std::string plan_section(const QuantizationPlan& plan);

}  // namespace fq::html
