#pragma once

/// GELU with the bits of the engine that computes it from a table.
///
///     const Variable y = ops::ggml_gelu(x);

#include "fakequant/core/variable.h"

namespace fq::ops {

/// ggml's on a CPU (llama.cpp's `gpt2`): f16(gelu by tanh of f16(x)), 0 up to -10, x from 10 on. f32 or f64
/// of any shape, as ops::gelu; the trace knows it as "gelu" with the attribute "engine".
///
/// tanh is that of this machine's libm, as the engine takes it. The gradient is that of the function which
/// the table stands for: of ops::gelu by tanh, or of the exact one.
[[nodiscard]] Variable ggml_gelu(const Variable& x, bool approximate_tanh = true);

}  // namespace fq::ops
