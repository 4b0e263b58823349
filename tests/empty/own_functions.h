#pragma once

/// Functions without golden files (grids, quantizers, calibrators, packing, updates of parameters) in
/// the form of golden functions, each with cases to begin with.

#include <vector>

#include "functions.h"

namespace fq::empty {

/// Public functions of the reference namespaces that a golden function calls, except the one that it is named
/// after.
[[nodiscard]] std::vector<std::string> nested_calls();

void add_own(golden::Functions& functions);
[[nodiscard]] std::vector<golden::Case> own_cases();

}  // namespace fq::empty
