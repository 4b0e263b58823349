#pragma once

/// Sums of code products in parts that floats hold exactly.

#include <cstdint>
#include <vector>

#include "fakequant/core/backend/cpu/engine/exact.h"
#include "fakequant/core/tensor.h"

namespace fq::cpu {

/// Whole numbers up to this are floats.
inline constexpr std::int64_t exact_limit = std::int64_t{1} << 24;

/// Channels [c0, c1) of each group, and of their kernels only the taps [p0, p1).
struct Part {
  std::int64_t c0, c1, p0, p1;
};
/// Parts of `channels` * `taps` products of at most `largest` each, whose sums stay within exact_limit.
[[nodiscard]] std::vector<Part> exact_parts(std::int64_t channels, std::int64_t taps, std::int64_t largest);

/// Rows of `groups` groups of `width` codes each; of every group the columns [begin, end).
struct CodeColumns {
  std::int64_t rows, groups, width, begin, end;
};
/// Those codes densely: as f32 or bf16 values, or in their own type.
[[nodiscard]] Tensor code_columns(const Codes& codes, const CodeColumns& columns, DType dtype);
/// Sets all but the taps [p0, p1) of each kernel of `taps` values to 0.
void keep_taps(Tensor& kernels, std::int64_t taps, const Part& part);
/// sums = parts, or sums += parts, the parts being whole numbers, f32 or i32.
void add_part(const Tensor& part, bool first, std::int32_t* sums);

}  // namespace fq::cpu
