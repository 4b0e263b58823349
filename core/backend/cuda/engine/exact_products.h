#pragma once

/// Products of codes by cuBLASLt, whose int32 sums are exact.

#include <cstddef>
#include <cstdint>

#include "fakequant/core/backend/cuda/engine/columns.h"
#include "fakequant/core/backend/cuda/engine/exact.h"
#include "fakequant/core/backend/product_shapes.h"
#include "fakequant/core/device.h"
#include "fakequant/core/storage.h"

namespace fq::cuda {

/// int8 products, padded to sizes that cuBLASLt supports: products in multiples of 16, outputs in multiples
/// of 4. u8 codes are multiplied as i8 after subtracting 128, and the sums are corrected. `computes_dx` has
/// the meaning of ColumnShape::computes_dx. The codes of the weights must outlive this object.
class ByteProducts {
 public:
  ByteProducts(const ConvShape& conv, const Codes& x, const Codes& w, Device device,
               bool computes_dx = false);

  /// Computes sums [images, oh, ow, o] of codes [images, h, w, c].
  void multiply(const std::byte* x, std::int64_t images, std::int32_t* sums);

 private:
  const void* columns(const std::byte* x, std::int64_t images);

  ColumnShape shape_;
  std::int64_t outputs_;
  const void* weights_;
  Storage packed_, corrections_, columns_, padded_;
  bool shifted_;
  Device device_;
};

/// Products of code values as bf16 or f32, in parts whose float sums are exact.
class FloatProducts {
 public:
  FloatProducts(const ConvShape& conv, const Codes& x, const Codes& w, DType values, Device device,
                bool computes_dx = false);

  [[nodiscard]] std::int64_t bytes() const { return bit_width(type_) / 8; }
  /// Computes sums [images, oh, ow, o] of codes [images, h, w, c].
  void multiply(const Codes& x, std::int64_t images, std::int32_t* sums) const;
  /// Computes columns [pixels, groups, K] of codes [pixels, o].
  void multiply_back(const Codes& x, std::int64_t pixels, std::int32_t* columns) const;

 private:
  [[nodiscard]] Storage decode(const Codes& codes, std::int64_t count) const;

  ColumnShape shape_;
  DType type_;
  std::int64_t part_;
  Storage weights_;
  Device device_;
};

// Conversions and corrections around exact products.

/// Converts i8 or u8 codes to bf16, f32 or f64 values.
void decode_codes(const fq::detail::Codes& codes, std::int64_t count, DType dtype, void* values,
                  Device device);
/// Computes corrections[r] = 128 * the sum of row r of i8 codes [rows, length], the part that codes minus 128
/// omit.
void shift_corrections(const std::int8_t* codes, std::int64_t rows, std::int64_t length,
                       std::int32_t* corrections, Device device);
/// Computes sums [rows, groups, outputs] = padded [rows, groups, padded_outputs] without its padding, plus
/// corrections [groups, padded_outputs], which may be null. `sums` may be `padded` if there is no padding.
struct PaddedSums {
  const std::int32_t* padded;
  std::int64_t rows, groups, outputs, padded_outputs;
};
void finish_sums(const PaddedSums& from, const std::int32_t* corrections, std::int32_t* sums, Device device);
/// Computes sums = part or sums += part, for whole numbers stored as floats.
void add_part(const float* part, std::int64_t count, bool first, std::int32_t* sums, Device device);

}  // namespace fq::cuda
