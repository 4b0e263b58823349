#pragma once

/// Types of elements as template parameters; not a public header. The operators have checked them.

#include "fakequant/core/dtype.h"

namespace fq::cuda {

/// f(float{}) or f(double{}).
template <class F>
void visit_float(DType dtype, F&& f) {
  if (dtype == DType::f64)
    f(double{});
  else
    f(float{});
}

}  // namespace fq::cuda
