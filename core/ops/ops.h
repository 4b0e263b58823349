#pragma once

/// All operators: free functions of Variables in fq::ops, a page for each kind.
///
/// They check shapes, dtypes and devices at their door and throw ArgumentError naming the operator; all
/// inputs lie on one device, on which the output is. An operator goes on the tape where an input takes a
/// gradient and no NoGrad lives, and reports to the recorder of its thread (core/trace.h). On `meta` only
/// shapes flow.

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
#include "fakequant/core/ops/recurrent.h"
#include "fakequant/core/ops/reduce.h"
#include "fakequant/core/ops/resize.h"
#include "fakequant/core/ops/shape.h"
