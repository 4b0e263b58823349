#include <algorithm>

#include "fakequant/core/backend/cpu/elementwise/map.h"
#include "fakequant/core/backend/cpu/recurrent/step_kernels.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/numerics/detail/recurrent_formulas.h"

namespace fq::cpu {
namespace {

/// work(begin, end) for blocks of rows.
template <class Work>
void for_rows(std::int64_t rows, std::int64_t width, const Work& work) {
  const std::int64_t block = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(width, 1)),
                     blocks = (rows + block - 1) / block;
#pragma omp parallel for schedule(static) if (rows * width > parallel_elements / 4)
  for (std::int64_t b = 0; b < blocks; ++b) work(b * block, std::min(rows, (b + 1) * block));
}

}  // namespace

void recurrent_step(detail::RecurrentStep& step) {
  const std::int64_t rows = step.state.dim(0), width = step.state.dim(1);
  if (step.state.dtype() == DType::f32)
    return for_rows(rows, width, [&, a = step.arrays<float>()](std::int64_t begin, std::int64_t end) {
      step_rows(step.kind, a, begin, end);
    });
  for_rows(rows, width, [&, a = step.arrays<double>()](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t j = 0; j < width; ++j)
        scalar::recurrent_step(step.kind, a, row, j, detail::OneNumber<double>());
  });
}

void recurrent_step_backward(detail::RecurrentStepBackward& step) {
  const std::int64_t rows = step.dy.dim(0), width = step.dy.dim(1);
  if (step.dy.dtype() == DType::f32)
    return for_rows(rows, width, [&, a = step.arrays<float>()](std::int64_t begin, std::int64_t end) {
      gradient_rows(step.kind, a, begin, end);
    });
  for_rows(rows, width, [&, a = step.arrays<double>()](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t j = 0; j < width; ++j)
        scalar::recurrent_gradient(step.kind, a, row, j, detail::OneNumber<double>());
  });
}

}  // namespace fq::cpu
