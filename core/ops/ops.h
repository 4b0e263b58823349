#pragma once

/// All operators.

#include "fakequant/core/context.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/conv.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/embedding.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/core/ops/norm.h"
#include "fakequant/core/ops/pool.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/ops/shape.h"
