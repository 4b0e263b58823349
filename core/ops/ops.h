#pragma once

/// All operators: free functions of Variables in fq::ops, a page for each kind.
///
///     const Variable h = ops::relu(ops::linear(x, w));             // w [64, 32] is a parameter
///     const Variable loss = ops::mean(ops::multiply(h, h));
///     loss.backward();                                             // w.grad()
///
/// They check shapes, dtypes and devices at their door and throw ArgumentError naming the operator; all
/// inputs lie on one device, on which the output is. An operator goes on the tape where an input takes a
/// gradient and no NoGrad lives (core/variable.h), and reports to the recorder of its thread (core/trace.h).
/// On `meta` only shapes flow.
///
/// Every operator takes floats. Codes and sums that a page does not mention are read as floats first
/// (Variable::as_float), so that any mixture is right; the pages say where they stay what they are. Results
/// have the same bits for any number of threads. Tensors convert to Variables: constants may be given as they
/// are.

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
