#pragma once

/// The formulas of `core/numerics/detail/histogram_formulas-inl.h` for one float, on host and device.

#include "fakequant/core/numerics/detail/formulas.h"
//
#include "fakequant/core/numerics/detail/histogram_formulas-inl.h"
