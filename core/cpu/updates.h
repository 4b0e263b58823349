#pragma once

/// Loops of the optimizers over lists of arrays; not a public header. One parallel region a list: each array
/// is cut evenly among the threads, and nobody waits between arrays.

#include <span>

#include "fakequant/core/updates.h"

namespace fq::cpu {

using detail::AdamArrays, detail::AdamFactors, detail::PairArrays, detail::SgdArrays, detail::SgdFactors,
    detail::SwapArrays;

template <class T>
void sgd(std::span<const SgdArrays<T>> arrays, const SgdFactors<T>& factors);

template <class T>
void adam(std::span<const AdamArrays<T>> arrays, const AdamFactors<T>& factors);

/// left += rate * (right - left)
template <class T>
void move_towards(std::span<const PairArrays<T>> arrays, T rate);

void swap_contents(std::span<const SwapArrays> arrays);

/// The sum of squares in f64: parts over fixed blocks, added in order.
template <class T>
[[nodiscard]] double sum_of_squares(const T* values, std::int64_t n);

}  // namespace fq::cpu
