#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"
#include "fakequant/core/blocks/detail/block_map.h"
#include "fakequant/core/numerics/detail/recurrent_formulas.h"

namespace fq::cuda {
namespace {

using fq::detail::OneNumber;
using fq::detail::quotient;
using fq::detail::RecurrentCell;

// gates, of_state: [rows, G * width]. One thread per element of the state computes all of its gates.
template <class T>
struct StepElement {
  RecurrentCell kind;
  fq::detail::RecurrentArrays<T> a;
  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, a.width);
    scalar::recurrent_step(kind, a, row, i - row * a.width, OneNumber<T>());
  }
};

template <class T>
struct GradientElement {
  RecurrentCell kind;
  fq::detail::RecurrentGradients<T> a;
  FQ_HD void operator()(std::int64_t i) const {
    const std::int64_t row = quotient(i, a.width);
    scalar::recurrent_gradient(kind, a, row, i - row * a.width, OneNumber<T>());
  }
};

}  // namespace

void recurrent_step(fq::detail::RecurrentStep& step) {
  visit_float(step.state.dtype(), [&]<class T>(T) {
    launch_each(step.state.device(), step.state.numel(), StepElement<T>{step.kind, step.arrays<T>()});
  });
}

void recurrent_step_backward(fq::detail::RecurrentStepBackward& step) {
  visit_float(step.dy.dtype(), [&]<class T>(T) {
    launch_each(step.dy.device(), step.dy.numel(), GradientElement<T>{step.kind, step.arrays<T>()});
  });
}

}  // namespace fq::cuda
