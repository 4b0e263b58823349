#pragma once

/// Lookup of rows.

#include "fakequant/core/variable.h"

namespace fq::ops {

/// y[.., :] = weight[ids[..], :]: the shape of `ids` and then D.
///
/// `ids` i64, i32 or whole numbers in f32, of any shape, without gradient; `weight` f32 or f64 [V, D] (codes
/// are dequantized). Row-major. The gradient of a row is the sum over its uses, in order. Throws
/// ArgumentError for another shape, dtype or device and for an id that is not 0 to V - 1, naming its place.
/// On a GPU such an id is a NumericError when a value is read back next.
[[nodiscard]] Variable embedding(const Variable& ids, const Variable& weight);

}  // namespace fq::ops
