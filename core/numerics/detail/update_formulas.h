#pragma once

/// The formulas of `update_formulas-inl.h` for one float or double, on host and device.

#include "fakequant/core/numerics/detail/scalar.h"
//
#include "fakequant/core/numerics/detail/update_formulas-inl.h"
