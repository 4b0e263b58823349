#pragma once

/// ggml's GELU by its table (core/numerics/detail/ggml_gelu.h).

#include <cstdint>

namespace fq::cpu {

/// y[i] = ggml_gelu(x[i]), with the bits of the formula. The table is made at the first call.
void ggml_gelu_values(const float* x, std::int64_t n, float* y);

}  // namespace fq::cpu
