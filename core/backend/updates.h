#pragma once

/// What the optimizers work on, for every device. f32 or f64.

#include <cstdint>

namespace fq::detail {

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
struct PairArrays {
  std::int64_t n;
  T* left;
  const T* right;
};

/// Words of two tensors that change places.
struct SwapArrays {
  std::int64_t n;
  std::uint32_t *left, *right;
};

}  // namespace fq::detail
