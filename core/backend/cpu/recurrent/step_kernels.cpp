#include "fakequant/core/backend/cpu/recurrent/step_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fakequant/core/backend/cpu/recurrent/step_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "fakequant/core/backend/cpu/vector/lanes-inl.h"
#include "fakequant/core/backend/cpu/vector/vector-inl.h"

#define FQ_FORMULAS_VECTOR
#include "fakequant/core/numerics/detail/recurrent_formulas-inl.h"
#undef FQ_FORMULAS_VECTOR

HWY_BEFORE_NAMESPACE();
namespace fq::HWY_NAMESPACE {

// Rows are handled one by one: the gates of a row are `width` apart.
void StepRows(detail::RecurrentCell cell, const detail::RecurrentArrays<float>& a, std::int64_t begin,
              std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row)
    visit_vectors<float>(0, a.width,
                         [&](std::int64_t j, auto io) HWY_ATTR { recurrent_step(cell, a, row, j, io); });
}
void GradientRows(detail::RecurrentCell cell, const detail::RecurrentGradients<float>& a, std::int64_t begin,
                  std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row)
    visit_vectors<float>(0, a.width,
                         [&](std::int64_t j, auto io) HWY_ATTR { recurrent_gradient(cell, a, row, j, io); });
}

}  // namespace fq::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fq {
HWY_EXPORT(StepRows);
HWY_EXPORT(GradientRows);

namespace cpu {

void step_rows(detail::RecurrentCell cell, const detail::RecurrentArrays<float>& a, std::int64_t begin,
               std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(StepRows)(cell, a, begin, end);
}
void gradient_rows(detail::RecurrentCell cell, const detail::RecurrentGradients<float>& a, std::int64_t begin,
                   std::int64_t end) {
  HWY_DYNAMIC_DISPATCH(GradientRows)(cell, a, begin, end);
}

}  // namespace cpu
}  // namespace fq
#endif
