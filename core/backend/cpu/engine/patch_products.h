#pragma once

/// Exact convolutions of codes as products of matrices (word_products.h), for processors where oneDNN has
/// nothing better than floats.

#include "fakequant/core/backend/product_shapes.h"

namespace fq::cpu {

/// Whether `convolve_patches` is the quickest here: where SDOT is, for filters of some length.
[[nodiscard]] bool by_patches(const detail::ConvShape& shape);

/// sums [n, oh, ow, o] = conv(x [n, h, w, c], w [o, c/groups, kh, kw]), of codes of a byte; |sums| must fit
/// int32. Each output pixel is a row of what its filters read, zeros outside of the image; some pixels at a
/// time, on every thread.
void convolve_patches(const detail::ConvShape& shape, const detail::Codes& x, const detail::Codes& w,
                      std::int32_t* sums);

}  // namespace fq::cpu
