#pragma once

/// Rows of a table by their indices.

#include <optional>
#include <string_view>

#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Throws ArgumentError, naming the place, unless all are whole numbers (f32), or 0 to size - 1 (i64).
void check_whole(const Tensor& values, std::string_view function, std::string_view what);
void check_indices(const Tensor& values, std::int64_t size, std::optional<std::int64_t> allowed,
                   std::string_view function, std::string_view what);

/// y[i] = table[ids[i]], `ids` i64; row-major.
void gather_rows(const Tensor& ids, const Tensor& table, Tensor& y);
/// table[r] = the sum of the x[i] with ids[i] = r, in order.
void sum_rows(const Tensor& ids, const Tensor& x, Tensor& table);

/// out[o, c, i] = 1 where labels[o, i] = c, else 0: f32 of view.outer, classes, view.inner; `labels` i64.
void one_hot(const Tensor& labels, const AxisView& view, Tensor& out);

}  // namespace fq::cpu
