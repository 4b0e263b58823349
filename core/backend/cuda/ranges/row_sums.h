#pragma once

/// Sums over the rows of a tensor on a device, with the bits of core/backend/cpu/ranges/rows.h: parts of 4096
/// elements, added in their order. Each waits for its sums.

#include <vector>

#include "fakequant/core/backend/cpu/ranges/rows.h"
#include "fakequant/core/format.h"

namespace fq::cuda {

/// sums[2 * r] += sum of |x| of row r, sums[2 * r + 1] += its elements, without zeros where they are skipped.
void add_magnitudes(const cpu::Rows& rows, bool skip_zeros, std::vector<double>& sums);
/// sums[r] += sum of row r.
void add_values(const cpu::Rows& rows, std::vector<double>& sums);

/// sums[r * multiples + k] += the squared errors of row r with the range amax[r] * multiples[k], as
/// cpu::add_squared_errors has them. `amax` f32, one a row.
void add_errors(const cpu::Rows& rows, const Tensor& amax, const std::vector<float>& multiples,
                const Format& format, std::vector<double>& sums);
/// The range of `ranges` with the smallest squared errors of each row, the first of equals; but amax itself
/// where it is `largest`. `amax` f32 on the device, one a row: it is replaced.
void sweep_ranges(const cpu::Rows& rows, const std::vector<float>& ranges, float largest,
                  const Format& format, Tensor& amax);

}  // namespace fq::cuda
