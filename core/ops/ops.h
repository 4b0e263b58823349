#pragma once

/// All operators: free functions of Variables in fq::ops, one header for each kind.
///
///     const Variable h = ops::relu(ops::linear(x, w));             // w [64, 32] is a parameter
///     const Variable loss = ops::mean(ops::multiply(h, h));
///     loss.backward();                                             // w.grad()
///
/// Each operator checks shapes, dtypes and devices first, and throws ArgumentError with the operator's name.
/// All inputs are on one device, and so is the output. An operator is recorded on the tape if an input
/// requires a gradient and no NoGrad is active (core/variable.h). It reports to the recorder of its thread
/// (core/trace.h). On the `meta` device only shapes are computed.
///
/// Every operator takes floats. Codes and sums are converted to floats first (Variable::as_float), unless the
/// header says that they stay codes or sums, so any mixture of inputs works. Results have the same bits for
/// any number of threads. Tensors convert to Variables, so constants can be passed directly.

#include "fakequant/core/context.h"
#include "fakequant/core/ops/activation.h"
#include "fakequant/core/ops/attention.h"
#include "fakequant/core/ops/conv.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/engines/engine_ops.h"
#include "fakequant/core/ops/linear.h"
#include "fakequant/core/ops/loss.h"
#include "fakequant/core/ops/norm.h"
#include "fakequant/core/ops/pool.h"
#include "fakequant/core/ops/quantize.h"
#include "fakequant/core/ops/recurrent.h"
#include "fakequant/core/ops/shape.h"
