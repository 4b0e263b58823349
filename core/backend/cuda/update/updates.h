#pragma once

/// The optimizers over lists of arrays. As fq::cpu has them, with its bits: one launch a list of some sixty
/// arrays.

#include <span>

#include "fakequant/core/backend/updates.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

template <class T>
void sgd(std::span<const fq::detail::SgdArrays<T>> arrays, const fq::detail::SgdFactors<T>& factors,
         Device device);
template <class T>
void adam(std::span<const fq::detail::AdamArrays<T>> arrays, const fq::detail::AdamFactors<T>& factors,
          Device device);
template <class T>
void move_towards(std::span<const fq::detail::PairArrays<T>> arrays, T rate, Device device);
template <class T>
void rule(const fq::detail::AnyRuleList<T>& arrays, Device device);
void swap_contents(std::span<const fq::detail::SwapArrays> arrays, Device device);

/// The sum of squares of all elements of f32 and f64 tensors, in f64. Waits for it.
[[nodiscard]] double sum_of_squares(std::span<const Tensor> tensors, Device device);

}  // namespace fq::cuda
