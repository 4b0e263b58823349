#pragma once

/// The formulas of `calib/formulas-inl.h` for one float, on host and device; not a public header.

#include "fakequant/core/formulas.h"
//
#include "fakequant/calib/formulas-inl.h"
