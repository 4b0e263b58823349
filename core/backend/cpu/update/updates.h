#pragma once

/// Loops of the optimizers over lists of arrays. One parallel region a list: each array is cut evenly among
/// the threads, and nobody waits between arrays.

#include <span>

#include "fakequant/core/backend/updates.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

using detail::AdamArrays, detail::AdamFactors, detail::PairArrays, detail::SgdArrays, detail::SgdFactors,
    detail::SwapArrays;

template <class T>
void sgd(std::span<const SgdArrays<T>> arrays, const SgdFactors<T>& factors, Device device);

template <class T>
void adam(std::span<const AdamArrays<T>> arrays, const AdamFactors<T>& factors, Device device);

/// left += rate * (right - left)
template <class T>
void move_towards(std::span<const PairArrays<T>> arrays, T rate, Device device);

/// The formulas of numerics/detail/update_rules.h.
template <class T>
void rule(const detail::AnyRuleList<T>& arrays, Device device);

void swap_contents(std::span<const SwapArrays> arrays, Device device);

/// The sum of squares of all elements of f32 and f64 tensors, in f64: parts over fixed blocks, added in
/// order.
[[nodiscard]] double sum_of_squares(std::span<const Tensor> tensors, Device device);

}  // namespace fq::cpu
