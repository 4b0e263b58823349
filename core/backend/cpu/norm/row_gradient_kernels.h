#pragma once

/// The loops of row_gradients.h for every vector instruction set, of f32, and as they are, of f64.

#include <cstdint>

#include "fakequant/core/backend/cpu/norm/row_gradients.h"

namespace fq::cpu {

void layer_norm_gradients(const LayerNormRow<float>& row, std::int64_t n, float* dx, float* dgamma,
                          float* dbeta);
void layer_norm_gradients(const LayerNormRow<double>& row, std::int64_t n, double* dx, double* dgamma,
                          double* dbeta);
void score_gradients(const float* p, std::int64_t n, float scale, float* dp);
void score_gradients(const double* p, std::int64_t n, double scale, double* dp);

}  // namespace fq::cpu
