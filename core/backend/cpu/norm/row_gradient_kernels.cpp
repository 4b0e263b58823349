#include "fakequant/core/backend/cpu/norm/row_gradient_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/norm/row_gradient_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

// The row loops of the header, compiled for every instruction set. f64 uses the build's own set.
void LayerNormGradients(const cpu::LayerNormRow<float>& row, std::int64_t n, float* dx, float* dgamma,
                        float* dbeta) {
  cpu::layer_norm_row_gradients(row, n, dx, dgamma, dbeta);
}
void ScoreGradients(const float* p, std::int64_t n, float scale, float* dp) {
  cpu::score_row_gradients(p, n, scale, dp);
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(LayerNormGradients);
HWY_EXPORT(ScoreGradients);

namespace cpu {

void layer_norm_gradients(const LayerNormRow<float>& row, std::int64_t n, float* dx, float* dgamma,
                          float* dbeta) {
  HWY_DYNAMIC_DISPATCH(LayerNormGradients)(row, n, dx, dgamma, dbeta);
}
void layer_norm_gradients(const LayerNormRow<double>& row, std::int64_t n, double* dx, double* dgamma,
                          double* dbeta) {
  layer_norm_row_gradients(row, n, dx, dgamma, dbeta);
}
void score_gradients(const float* p, std::int64_t n, float scale, float* dp) {
  HWY_DYNAMIC_DISPATCH(ScoreGradients)(p, n, scale, dp);
}
void score_gradients(const double* p, std::int64_t n, double scale, double* dp) {
  score_row_gradients(p, n, scale, dp);
}

}  // namespace cpu
}  // namespace fq
#endif
