#pragma once

/// Loops of the optimizers over lists of arrays; not a public header. One parallel region a list: each array
/// is cut evenly among the threads, and nobody waits between arrays.

#include <cstdint>
#include <span>

namespace fq::cpu {

template <class T>
struct SgdArrays {
  std::int64_t n;
  T* parameter;
  const T* gradient;
  T* momentum;  // null without
  T learning_rate, weight_decay;
};

template <class T>
struct SgdFactors {
  T momentum, scale;
  bool nesterov;
};

template <class T>
void sgd(std::span<const SgdArrays<T>> arrays, const SgdFactors<T>& factors);

template <class T>
struct AdamArrays {
  std::int64_t n;
  T* parameter;
  const T* gradient;
  T *mean, *square;
  T rate;          // learning rate / (1 - beta1^t)
  T root;          // 1 / sqrt(1 - beta2^t)
  T weight_decay;  // added to the gradient
  T keep;          // multiplies the parameter first
};

template <class T>
struct AdamFactors {
  T beta1, rest1, beta2, rest2;  // rest = 1 - beta, rounded once
  T eps, scale;
};

template <class T>
void adam(std::span<const AdamArrays<T>> arrays, const AdamFactors<T>& factors);

template <class T>
struct PairArrays {
  std::int64_t n;
  T* left;
  const T* right;
};

/// left += rate * (right - left)
template <class T>
void move_towards(std::span<const PairArrays<T>> arrays, T rate);

/// The sum of squares in f64: parts over fixed blocks, added in order.
template <class T>
[[nodiscard]] double sum_of_squares(const T* values, std::int64_t n);

}  // namespace fq::cpu
