#pragma once

/// Steps of recurrent layers in f32 on rows [begin, end), for every vector instruction set, with the bits of
/// the scalar formulas.

#include "fakequant/core/numerics/detail/recurrent_arrays.h"

namespace fq::cpu {

void step_rows(detail::RecurrentCell cell, const detail::RecurrentArrays<float>& a, std::int64_t begin,
               std::int64_t end);
void gradient_rows(detail::RecurrentCell cell, const detail::RecurrentGradients<float>& a, std::int64_t begin,
                   std::int64_t end);

}  // namespace fq::cpu
