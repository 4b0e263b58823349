#pragma once

/// Codes of any format in groups of eight elements.

#include <cmath>

#include "fakequant/core/backend/cuda/loops/groups.cuh"
#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/dtype.h"
#include "fakequant/core/format.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"
#include "fakequant/core/numerics/detail/minifloat.h"

namespace fq::cuda {

/// Storage type and format of codes.
struct CodeFormat {
  DType dtype;
  fq::detail::GridFormat grid;
  Minifloat floating;

  [[nodiscard]] static CodeFormat of(const Format& format) {
    return {format.code_dtype(), fq::detail::GridFormat::of(format),
            Minifloat::of(format.is_integer() ? FloatFormat{} : format.floating())};
  }

  /// Returns the code of a number as a float.
  [[nodiscard]] FQ_HD float code(float v, const fq::detail::GridRow& row) const {
    if (grid.integer) return scalar::quantize_code(v, row.scale, row.lower, row.upper);
    return floating.round(scalar::div_(v, row.scale));
  }
};

/// Codes of numbers that share a grid row. Codes of few bits need no division. For any x, scalar::divide_code
/// is on the same side of each number of at most nine bits as fl(x / scale), or equal to it, and is therefore
/// rounded to the same code. (Tested for every significand of a scale with every such number, and each x
/// within 3 units of their product.) Values that would saturate are clamped first.
struct RowCodes {
  CodeFormat format;
  fq::detail::GridRow row;
  float inverse, low, high;

  RowCodes() = default;
  FQ_HD RowCodes(const CodeFormat& own, const fq::detail::GridRow& numbers)
      : format(own),
        row(numbers),
        inverse(scalar::div_(1.0f, row.scale)),
        low(scalar::mul_(own.grid.integer ? row.lower : -own.floating.max, row.scale)),
        high(scalar::mul_(own.grid.integer ? row.upper : own.floating.max, row.scale)) {}

  /// Returns whether `quotient` can be used: the residuals of the smallest codes must be exact. Integer codes
  /// must have one byte.
  [[nodiscard]] FQ_HD bool few_bits() const {
    const bool bytes = format.dtype == DType::i8 || format.dtype == DType::u8;
    return row.scale >= 0x1p-80f && scalar::divides_exactly(row.scale) && (bytes || !format.grid.integer);
  }
  [[nodiscard]] FQ_HD float quotient(float v) const {
    return scalar::divide_code(std::fmin(std::fmax(v, low), high), row.scale, inverse);
  }
  /// Returns the code in the low byte.
  [[nodiscard]] FQ_HD std::uint8_t byte(float v) const {
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(scalar::add_(quotient(v), 0x1.8p23f)));
  }
};

namespace loops {

/// Four bits per element, low bits first. `first` is a multiple of 8. Returns whether eight codes can be read
/// as one word.
FQ_HD bool whole_word(const std::uint8_t* p, int count) {
  return count == group_size && reinterpret_cast<std::uintptr_t>(p) % sizeof(std::uint32_t) == 0;
}
FQ_HD void load_nibbles(const std::uint8_t* p, std::int64_t first, int count, std::uint8_t (&v)[group_size]) {
  if (whole_word(p + (first >> 1), count)) {
    const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(p + (first >> 1));
    for (int j = 0; j < group_size; ++j) v[j] = static_cast<std::uint8_t>(word >> (4 * j) & 15);
    return;
  }
  for (int j = 0; j < group_size; ++j)
    v[j] = j < count ? static_cast<std::uint8_t>(p[(first + j) >> 1] >> (4 * (j & 1)) & 15) : std::uint8_t{0};
}
FQ_HD void store_nibbles(std::uint8_t* p, std::int64_t first, int count,
                         const std::uint8_t (&v)[group_size]) {
  if (whole_word(p + (first >> 1), count)) {
    std::uint32_t word = 0;
    for (int j = 0; j < group_size; ++j) word |= std::uint32_t{v[j]} << (4 * j);
    *reinterpret_cast<std::uint32_t*>(p + (first >> 1)) = word;
    return;
  }
  for (int j = 0; j < group_size; j += 2)
    if (j < count)
      p[(first + j) >> 1] = static_cast<std::uint8_t>(v[j] | (j + 1 < count ? v[j + 1] << 4 : 0));
}

template <class Code>
FQ_HD void load_integers(const void* p, std::int64_t first, int count, float (&v)[group_size]) {
  load_converted(static_cast<const Code*>(p) + first, count, v);
}
template <class Code>
FQ_HD void store_integers(void* p, std::int64_t first, int count, const float (&v)[group_size]) {
  store_converted(static_cast<Code*>(p) + first, count, v);
}

}  // namespace loops

/// Returns the value of one code.
FQ_HD float load_code(const void* codes, const CodeFormat& format, std::int64_t i) {
  const auto* bytes = static_cast<const std::uint8_t*>(codes);
  if (!format.grid.integer) {
    const bool packed = format.dtype == DType::f4_e2m1;
    return format.floating.decode(packed ? static_cast<std::uint8_t>(bytes[i >> 1] >> (4 * (i & 1)) & 15)
                                         : bytes[i]);
  }
  switch (format.dtype) {
    case DType::i8:
      return static_cast<float>(static_cast<const std::int8_t*>(codes)[i]);
    case DType::u8:
      return static_cast<float>(bytes[i]);
    case DType::i16:
      return static_cast<float>(static_cast<const std::int16_t*>(codes)[i]);
    default:
      return static_cast<float>(static_cast<const std::int32_t*>(codes)[i]);
  }
}

/// Sets v[j] to the value of the code of element first + j, j < count <= 8. `first` is a multiple of 8. The
/// other elements have the value of code 0.
FQ_HD void load_codes(const void* codes, const CodeFormat& format, std::int64_t first, int count,
                      float (&v)[group_size]) {
  if (!format.grid.integer) {
    const auto* bytes = static_cast<const std::uint8_t*>(codes);
    std::uint8_t own[group_size];
    if (format.dtype == DType::f4_e2m1)
      loops::load_nibbles(bytes, first, count, own);
    else
      load_group(bytes + first, count, own);
    for (int j = 0; j < group_size; ++j) v[j] = format.floating.decode(own[j]);
    return;
  }
  switch (format.dtype) {
    case DType::i8:
      return loops::load_integers<std::int8_t>(codes, first, count, v);
    case DType::u8:
      return loops::load_integers<std::uint8_t>(codes, first, count, v);
    case DType::i16:
      return loops::load_integers<std::int16_t>(codes, first, count, v);
    default:
      return loops::load_integers<std::int32_t>(codes, first, count, v);
  }
}

/// Stores integer codes.
FQ_HD void store_integer_codes(void* codes, DType dtype, std::int64_t first, int count,
                               const float (&v)[group_size]) {
  switch (dtype) {
    case DType::i8:
      return loops::store_integers<std::int8_t>(codes, first, count, v);
    case DType::u8:
      return loops::store_integers<std::uint8_t>(codes, first, count, v);
    case DType::i16:
      return loops::store_integers<std::int16_t>(codes, first, count, v);
    default:
      return loops::store_integers<std::int32_t>(codes, first, count, v);
  }
}

/// Stores values on the grid as codes.
FQ_HD void store_codes(void* codes, const CodeFormat& format, std::int64_t first, int count,
                       const float (&v)[group_size]) {
  if (format.grid.integer) return store_integer_codes(codes, format.dtype, first, count, v);
  auto* bytes = static_cast<std::uint8_t*>(codes);
  std::uint8_t own[group_size];
  for (int j = 0; j < group_size; ++j) own[j] = format.floating.encode(v[j]);
  if (format.dtype == DType::f4_e2m1) return loops::store_nibbles(bytes, first, count, own);
  store_group(bytes + first, count, own);
}

// Codes of one byte in a matrix with one scale per column.

/// Quantizes one-byte integer codes whose columns are whole groups of eight, with 16-byte aligned memory, and
/// the bits of `quantize`. Returns false without any work in other cases.
bool quantize_code_columns(const fq::detail::QuantizeCall& call);

}  // namespace fq::cuda
