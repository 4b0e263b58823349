#pragma once

/// Sums over the rows of a tensor, in parts that are added in their order, and ranges chosen by them.

#include <vector>

#include "fakequant/core/backend/cpu/ranges/rows.h"
#include "fakequant/core/format.h"

namespace fq::cpu {

/// sums[2 * r] += sum of |x| of row r, sums[2 * r + 1] += its elements, without zeros where they are skipped.
void add_magnitudes(const Rows& rows, bool skip_zeros, std::vector<double>& sums);
/// sums[r] += sum of row r.
void add_values(const Rows& rows, std::vector<double>& sums);
/// sums[r * multiples + k] += the squared errors of row r with the range amax[r] * multiples[k], as
/// add_squared_errors has them. `amax` f32, one a row.
void add_errors(const Rows& rows, const Tensor& amax, const std::vector<float>& multiples,
                const Format& format, std::vector<double>& sums);
/// The range of `ranges` with the smallest squared errors of each row, the first of equals; but amax itself
/// where it is `largest`. `amax` f32, one a row: it is replaced.
void sweep_ranges(const Rows& rows, const std::vector<float>& ranges, float largest, const Format& format,
                  Tensor& amax);

}  // namespace fq::cpu
