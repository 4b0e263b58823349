#pragma once

/// What codes were made of, for who reads it again.

#include <variant>

#include "fakequant/core/accumulator.h"

namespace fq::detail {

/// f32 numbers, or the sums that were rounded.
using RangedValues = std::variant<Tensor, Accumulator>;

/// As floats of that layout.
[[nodiscard]] inline Tensor floats_of(const RangedValues& x, Layout layout) {
  const auto* sums = std::get_if<Accumulator>(&x);
  return (sums != nullptr ? to_float(*sums) : std::get<Tensor>(x)).to(layout);
}

}  // namespace fq::detail
