#pragma once

#include "fakequant/core/variable.h"

namespace fq::test {

/// f32, -1 to 1 in steps of 1/8.
inline Variable eighths(const Shape& shape, std::uint64_t seed) {
  Tensor x = Tensor::empty(shape, DType::f32);
  auto* to = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i)
    to[i] = static_cast<float>((static_cast<std::uint64_t>(i) * 7 + seed * 13) % 17) / 8.0f - 1.0f;
  return Variable(x);
}

}  // namespace fq::test
