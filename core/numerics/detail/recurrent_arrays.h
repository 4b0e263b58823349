#pragma once

/// The arrays of one step of a recurrent layer, for the formulas of recurrent_formulas-inl.h.

#include <cstdint>

namespace fq::detail {

/// `rnn_tanh` and `rnn_relu` are plain layers, of one function.
enum class RecurrentCell : unsigned char { lstm, gru, rnn_tanh, rnn_relu };

/// Blocks of rows in the weights.
constexpr std::int64_t gates_of(RecurrentCell cell) noexcept {
  return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1;
}

/// Of G gates, row-major: `gates` [N, G*H] are sums of the input before a step and the functions of the gates
/// behind it; `of_state` [N, G*H] are sums of the state, of a GRU its last gate with `state_bias` behind the
/// step. `before` [N, H] is the cell of an LSTM, the state of a GRU, else null.
template <class T>
struct RecurrentArrays {
  std::int64_t width = 0;  ///< H
  T *gates = nullptr, *of_state = nullptr;
  const T* bias = nullptr;        ///< [G*H], of both sums but the last of a GRU
  const T* state_bias = nullptr;  ///< [H], of a GRU
  const T* before = nullptr;
  T* cell = nullptr;  ///< [N, H], of an LSTM
  T* state = nullptr;
};

/// Of the same step, backward.
template <class T>
struct RecurrentGradients {
  std::int64_t width = 0;
  const T *gates = nullptr, *of_state = nullptr, *before = nullptr, *cell = nullptr;
  const T* dy = nullptr;      ///< [N, H] of the output of the step
  const T* dstate = nullptr;  ///< [N, H] through the products of the step behind it
  /// [N, H], of that step and then of this one: the gradient of the cell of an LSTM; what passes a GRU's
  /// state by, around its products; of the others null.
  T* carried = nullptr;
  T* dgates = nullptr;     ///< [N, G*H] of the sums of the input
  T* dof_state = nullptr;  ///< those of the state, of a GRU; of the others they are dgates
};

}  // namespace fq::detail
