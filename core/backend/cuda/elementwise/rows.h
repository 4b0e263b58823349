#pragma once

/// Rows of a table by their indices.

#include <optional>
#include <string_view>

#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// Raise an alarm (ArgumentError when a value is next read back) unless all are whole, or 0 to size - 1.
void check_whole(const Tensor& values, std::string_view function, std::string_view what);
void check_indices(const Tensor& values, std::int64_t size, std::optional<std::int64_t> allowed,
                   std::string_view function, std::string_view what);

/// As fq::cpu has them; an index that is out of range gives a row of zeros, and is left out of sums.
void gather_rows(const Tensor& ids, const Tensor& table, Tensor& y);
void sum_rows(const Tensor& ids, const Tensor& x, Tensor& table);
void one_hot(const Tensor& labels, const AxisView& view, Tensor& out);

}  // namespace fq::cuda
