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

/// How codes are kept, and what they mean.
struct CodeFormat {
  DType dtype;
  fq::detail::GridFormat grid;
  Minifloat floating;

  [[nodiscard]] static CodeFormat of(const Format& format) {
    return {format.code_dtype(), fq::detail::GridFormat::of(format),
            Minifloat::of(format.is_integer() ? FloatFormat{} : format.floating())};
  }

  /// The value of the code of a number.
  [[nodiscard]] FQ_HD float code(float v, const fq::detail::GridRow& row) const {
    if (grid.integer) return scalar::quantize_code(v, row.scale, row.lower, row.upper);
    return floating.round(scalar::div_(v, row.scale));
  }
};

/// The codes of numbers that share a row. Those of few bits need no division: scalar::divide_code of any
/// number x lies on the side of every number of at most nine bits, or on it, where fl(x / scale) does, and so
/// is rounded to the same code (every significand of a scale was tried with every such number, and each x
/// within 3 units of their product). What would saturate is cut before.
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

  /// Whether `quotient` holds: residuals of the smallest codes are not rounded. Of integers: of bytes.
  [[nodiscard]] FQ_HD bool few_bits() const {
    const bool bytes = format.dtype == DType::i8 || format.dtype == DType::u8;
    return row.scale >= 0x1p-80f && scalar::divides_exactly(row.scale) && (bytes || !format.grid.integer);
  }
  [[nodiscard]] FQ_HD float quotient(float v) const {
    return scalar::divide_code(std::fmin(std::fmax(v, low), high), row.scale, inverse);
  }
  /// The code in the low byte.
  [[nodiscard]] FQ_HD std::uint8_t byte(float v) const {
    return static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(scalar::add_(quotient(v), 0x1.8p23f)));
  }
};

namespace loops {

/// Four bits an element, low ones first; `first` is a multiple of 8. Eight of them are one word.
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
  load_as(static_cast<const Code*>(p) + first, count, v);
}
template <class Code>
FQ_HD void store_integers(void* p, std::int64_t first, int count, const float (&v)[group_size]) {
  store_as(static_cast<Code*>(p) + first, count, v);
}

}  // namespace loops

/// The value of one code.
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

/// v[j] = value of the code of element first + j, j < count <= 8; `first` is a multiple of 8. The others are
/// those of code 0.
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

/// Of integers.
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

/// The codes of values on the grid.
FQ_HD void store_codes(void* codes, const CodeFormat& format, std::int64_t first, int count,
                       const float (&v)[group_size]) {
  if (format.grid.integer) return store_integer_codes(codes, format.dtype, first, count, v);
  auto* bytes = static_cast<std::uint8_t*>(codes);
  std::uint8_t own[group_size];
  for (int j = 0; j < group_size; ++j) own[j] = format.floating.encode(v[j]);
  if (format.dtype == DType::f4_e2m1) return loops::store_nibbles(bytes, first, count, own);
  store_group(bytes + first, count, own);
}

// Codes of one byte of a matrix with one scale for each column.

/// Quantizes where codes are integers of one byte, columns whole groups of eight and everything lies at
/// multiples of 16 bytes, with the bits of `quantize`; false, and nothing is done, elsewhere.
bool quantize_code_columns(const fq::detail::QuantizeCall& call);

}  // namespace fq::cuda
