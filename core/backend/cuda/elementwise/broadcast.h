#pragma once

/// Elementwise functions of two tensors that broadcast, and what joins elements again.

#include "fakequant/core/numerics/detail/arithmetic.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// y = f(a, b) where a and b, of any layouts, broadcast to the shape of y.
void combine(const Tensor& a, const Tensor& b, const fq::detail::Arithmetic& f, Tensor& y);
/// y = x * factor, of one layout.
void scale(const Tensor& x, double factor, Tensor& y);
/// The elements of `x` joined over the axes along which `out` (row-major) was broadcast to its shape; in f64.
void reduce_to(const Tensor& x, const fq::detail::Reduction& reduction, Tensor& out);

}  // namespace fq::cuda
