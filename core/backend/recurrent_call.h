#pragma once

/// What kernels of recurrent layers are told: the tensors of one step. See numerics/detail/recurrent_arrays.h
/// for their shapes and what becomes of them; all of one type, f32 or f64, row-major.

#include "fakequant/core/numerics/detail/recurrent_arrays.h"
#include "fakequant/core/tensor.h"

namespace fq::detail {

struct RecurrentStep {
  RecurrentCell kind;
  Tensor gates, of_state;
  Tensor bias, state_bias;
  Tensor before, cell, state;

  template <class T>
  [[nodiscard]] RecurrentArrays<T> arrays() {
    const auto in = [](const Tensor& x) { return x.defined() ? static_cast<const T*>(x.raw()) : nullptr; };
    const auto out = [](Tensor& x) { return x.defined() ? static_cast<T*>(x.mutable_raw()) : nullptr; };
    return {state.dim(1),   out(gates), out(of_state), in(bias),
            in(state_bias), in(before), out(cell),     out(state)};
  }
};

struct RecurrentStepBackward {
  RecurrentCell kind;
  Tensor gates, of_state, before, cell;
  Tensor dy, dstate;
  Tensor carried, dgates, dof_state;

  template <class T>
  [[nodiscard]] RecurrentGradients<T> arrays() {
    const auto in = [](const Tensor& x) { return x.defined() ? static_cast<const T*>(x.raw()) : nullptr; };
    const auto out = [](Tensor& x) { return x.defined() ? static_cast<T*>(x.mutable_raw()) : nullptr; };
    return {dy.dim(1), in(gates),  in(of_state), in(before),  in(cell),
            in(dy),    in(dstate), out(carried), out(dgates), out(dof_state)};
  }
};

}  // namespace fq::detail
