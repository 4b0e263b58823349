#pragma once

/// The loops of batch normalization over f32, for every vector instruction set.
///
/// `x` has `count` elements with channels innermost: floats, or sums converted to floats. The other
/// parameters are repeated over runs of `width` (channels.h). The first element of x is the first of a run.

#include <cstdint>

#include "fakequant/core/backend/integer_moments.h"

namespace fq::cpu {

/// Computes sums[i] += x - first[i], squares[i] += (x - first[i])^2, over the runs.
void moment_sums(const float* x, std::int64_t count, std::int64_t width, const float* first, float* sums,
                 float* squares);
/// Computes the sums of each column over the runs, exactly.
void integer_sums(const std::int32_t* x, std::int64_t count, std::int64_t width, detail::IntegerSums* sums);
/// Computes sums[i] += dy, products[i] += dy * (x - mean[i]), over the runs.
void gradient_sums(const float* dy, const float* x, std::int64_t count, std::int64_t width, const float* mean,
                   float* sums, float* products);
void gradient_sums(const float* dy, const std::int32_t* x, std::int64_t count, std::int64_t width,
                   const float* mean, float* sums, float* products);

/// Computes y = normalized(x). y may be x.
void normalize(const float* x, std::int64_t count, std::int64_t width, const float* mean, const float* factor,
               const float* shift, float* y);
/// Computes dx = normalized_gradient(dy, x). dx may be dy.
void normalize_backward(const float* dy, const float* x, std::int64_t count, std::int64_t width,
                        const float* mean, const float* factor, const float* slope, const float* shift,
                        float* dx);
void normalize_backward(const float* dy, const std::int32_t* x, std::int64_t count, std::int64_t width,
                        const float* mean, const float* factor, const float* slope, const float* shift,
                        float* dx);

}  // namespace fq::cpu
