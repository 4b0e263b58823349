#pragma once

/// Networks of several inputs: their values lie side by side in one row for each sample, and each input is a
/// part of that row.
///
///     const Variable image = ops::input_part(row, {.begin = 0, .shape = {3, 8, 8}, .name = "image"});
///     const Variable ids = ops::input_part(row, {.begin = 192, .shape = {16}, .name = "ids", .type = "i64"});

#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Which elements of a row are an input, and what that input is in an exported file.
struct InputPart {
  std::int64_t begin = 0;  ///< its first element
  Shape shape = {};        ///< of one sample; empty for one number a sample, [N]
  std::string name = {};   ///< of the exported input
  /// The exported input's elements: "f32", "f64", "f16", "i8", "u8", "i16", "i32", "i64" or "bool".
  std::string type = "f32";
};

/// The types that an input may have.
[[nodiscard]] const std::vector<std::string>& input_part_types();

/// Elements [begin, begin + numel(shape)) of each row of x, [N, K] to [N, shape..]. x is f32 or f64, or
/// integers, which become f32, so that whole numbers are exact up to 2^24. The values are those of the row
/// whatever `type` says. A quantizer behind one part has nothing to do with those behind others. Throws
/// ArgumentError for an x that has not two axes, a part that is empty or not within the row, and a type that
/// is none of those.
[[nodiscard]] Variable input_part(const Variable& x, const InputPart& part);

}  // namespace fq::ops
