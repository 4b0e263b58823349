#pragma once

/// Everything public, folder by folder.

#include "fakequant/calib/calibrator.h"
#include "fakequant/calib/max_calibrator.h"
#include "fakequant/calib/moving_average_calibrator.h"

#include "fakequant/core/accumulator.h"
#include "fakequant/core/allocator.h"
#include "fakequant/core/descriptor.h"
#include "fakequant/core/descriptor_fields.h"
#include "fakequant/core/device.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/error.h"
#include "fakequant/core/format.h"
#include "fakequant/core/formulas.h"
#include "fakequant/core/half.h"
#include "fakequant/core/host_device.h"
#include "fakequant/core/quantized.h"
#include "fakequant/core/scalar.h"
#include "fakequant/core/shape.h"
#include "fakequant/core/storage.h"
#include "fakequant/core/tape.h"
#include "fakequant/core/tensor.h"
#include "fakequant/core/text.h"
#include "fakequant/core/trace.h"
#include "fakequant/core/variable.h"

#include "fakequant/layers/module.h"
