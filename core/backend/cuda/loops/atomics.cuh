#pragma once

/// Atomic operations on integers shared by the threads of a launch. Sums and extremes of integers do not
/// depend on the order. On the host a launch runs one thread at a time. Alarms use these operations.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "fakequant/core/backend/cuda/runtime/stream.h"
#include "fakequant/core/numerics/number_formats.h"

namespace fq::cuda {

/// Returns the address in the type that CUDA's functions expect.
template <class T>
FQ_HD auto* atomic_word(T& place) {
  using Long = std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>;
  return reinterpret_cast<std::conditional_t<sizeof(T) == 8, Long, T>*>(&place);
}

template <class T>
FQ_HD void atomic_add(T& place, T number) {
  FQ_BY_TARGET(atomicAdd(atomic_word(place), number), place += number);
}
template <class T>
FQ_HD void atomic_lower(T& place, T number) {
  FQ_BY_TARGET(atomicMin(atomic_word(place), number), place = std::min(place, number));
}
template <class T>
FQ_HD void atomic_raise(T& place, T number) {
  FQ_BY_TARGET(atomicMax(atomic_word(place), number), place = std::max(place, number));
}

FQ_HD void raise(const Alarm& alarm) { atomic_lower(*alarm.flag, alarm.id); }

}  // namespace fq::cuda
