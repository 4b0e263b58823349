#pragma once

/// The formulas of `update_formulas-inl.h` for one float or double, on host and device; not a public header.

#include "fakequant/core/scalar.h"
//
#include "fakequant/core/update_formulas-inl.h"
