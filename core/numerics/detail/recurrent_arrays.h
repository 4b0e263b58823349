#pragma once

/// The arrays of one step of a recurrent layer, for the formulas of recurrent_formulas-inl.h.

#include <cstdint>

namespace fq::detail {

/// `rnn_tanh` and `rnn_relu` are simple recurrent layers with one function.
enum class RecurrentCell : unsigned char { lstm, gru, rnn_tanh, rnn_relu };

/// Number of row blocks in the weights.
constexpr std::int64_t gate_count(RecurrentCell cell) noexcept {
  return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1;
}

/// Arrays of a step with G gates, row-major. `gates` [N, G*H] holds the sums of the input before the step
/// and the gate activations after it. `of_state` [N, G*H] holds the sums of the state. For a GRU, the last
/// gate of `of_state` includes `state_bias` after the step. `before` [N, H] is the cell of an LSTM or the
/// state of a GRU, else null.
template <class T>
struct RecurrentArrays {
  std::int64_t width = 0;  ///< H
  T *gates = nullptr, *of_state = nullptr;
  const T* bias = nullptr;        ///< [G*H], for both sums except the last gate of a GRU
  const T* state_bias = nullptr;  ///< [H], for a GRU
  const T* before = nullptr;
  T* cell = nullptr;  ///< [N, H], for an LSTM
  T* state = nullptr;
};

/// Arrays of the backward pass of a step.
template <class T>
struct RecurrentGradients {
  std::int64_t width = 0;
  const T *gates = nullptr, *of_state = nullptr, *before = nullptr, *cell = nullptr;
  const T* dy = nullptr;      ///< [N, H], gradient of the step's output
  const T* dstate = nullptr;  ///< [N, H], gradient through the products of the next step
  /// [N, H], input: from the next step, output: of this step. For an LSTM, the gradient of the cell. For a
  /// GRU, the gradient of the state that bypasses the products. Null for other layers.
  T* carried = nullptr;
  T* dgates = nullptr;     ///< [N, G*H], gradient of the sums of the input
  T* dof_state = nullptr;  ///< for a GRU, gradient of the sums of the state; otherwise equal to dgates
};

}  // namespace fq::detail
