#pragma once

/// Batch normalization of a matrix of rows (pixels) by channels, innermost; not a public header.
///
/// x is f32, f64, or i32 sums read as f32; dy, dx and y are f64 with f64, else f32. Sums are made of parts
/// over fixed blocks of rows, added in order in f64: they do not depend on the thread count.

#include <cstdint>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// One value a channel.
using PerChannel = std::vector<double>;

struct Moments {
  PerChannel mean, variance;  ///< variance over rows, not rows - 1
};

/// 0 of an empty x.
[[nodiscard]] Moments moments(const Tensor& x, std::int64_t channels);

/// y = (x - mean[c]) * factor[c] + shift[c]; x floats.
void normalize(const Tensor& x, const PerChannel& mean, const PerChannel& factor, const PerChannel& shift,
               Tensor& y);

/// sum dy and sum dy * (x - mean), a channel each.
struct GradientSums {
  PerChannel dy, product;
};
[[nodiscard]] GradientSums gradient_sums(const Tensor& dy, const Tensor& x, const PerChannel& mean);

/// dx = dy * factor[c] + (x - mean[c]) * slope[c] + shift[c]; dx may be dy.
void normalize_backward(const Tensor& dy, const Tensor& x, const PerChannel& mean, const PerChannel& factor,
                        const PerChannel& slope, const PerChannel& shift, Tensor& dx);

}  // namespace fq::cpu
