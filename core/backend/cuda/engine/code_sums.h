#pragma once

/// What exact products do besides multiplying.

#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/device.h"

namespace fq::cuda {

/// Codes, i8 or u8, as bf16, f32 or f64 values.
void decode_codes(const fq::detail::Codes& codes, std::int64_t count, DType dtype, void* values,
                  Device device);
/// corrections[r] = 128 * the sum of row r of i8 codes [rows, length]: what codes less 128 leave out.
void shift_corrections(const std::int8_t* codes, std::int64_t rows, std::int64_t length,
                       std::int32_t* corrections, Device device);
/// sums [rows, groups, outputs] = padded [rows, groups, padded_outputs] without its padding, plus corrections
/// [groups, padded_outputs], which may be null. `sums` may be `padded` where nothing is padded.
struct PaddedSums {
  const std::int32_t* padded;
  std::int64_t rows, groups, outputs, padded_outputs;
};
void finish_sums(const PaddedSums& from, const std::int32_t* corrections, std::int32_t* sums, Device device);
/// sums = part, or sums += part, of whole numbers in floats.
void add_part(const float* part, std::int64_t count, bool first, std::int32_t* sums, Device device);

}  // namespace fq::cuda
