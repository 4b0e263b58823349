#include <initializer_list>

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

void note_operands(std::initializer_list<Tensor> read, std::initializer_list<Tensor> written) {
  for (const Tensor& x : read)
    if (x.defined()) note_read(x.raw(), x.nbytes());
  for (const Tensor& x : written)
    if (x.defined()) note_written(x.raw(), x.nbytes());
}

}  // namespace

void recurrent_step(fq::detail::RecurrentStep& step) {
  note_operands({step.gates, step.of_state, step.bias, step.state_bias, step.before},
                {step.gates, step.of_state, step.cell, step.state});
  visit_float(step.state.dtype(), [&]<class T>(T) {
    launch_each(step.state.device(), step.state.numel(), StepElement<T>{step.kind, step.arrays<T>()});
  });
}

void recurrent_step_backward(fq::detail::RecurrentStepBackward& step) {
  note_operands({step.gates, step.of_state, step.before, step.cell, step.dy, step.dstate, step.carried},
                {step.carried, step.dgates, step.dof_state});
  visit_float(step.dy.dtype(), [&]<class T>(T) {
    launch_each(step.dy.device(), step.dy.numel(), GradientElement<T>{step.kind, step.arrays<T>()});
  });
}

}  // namespace fq::cuda
