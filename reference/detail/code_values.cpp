#include "fakequant/reference/detail/code_values.h"

#include <array>

namespace fq::detail {
namespace {

// Value of a code in the low bits.
float code_value(DType dtype, unsigned code) {
  const int bits = bit_width(dtype);
  switch (dtype) {
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f4_e2m1:
      return dtype_minifloat(dtype).decode(static_cast<std::uint8_t>(code));
    case DType::f8_e8m0:
      return decode_e8m0(static_cast<std::uint8_t>(code));
    case DType::i2:
    case DType::i4:
      // Two's complement of 2 or 4 bits.
      return static_cast<float>(static_cast<int>(code) - (code >> (bits - 1) != 0 ? 1 << bits : 0));
    default:
      return static_cast<float>(code);
  }
}

using Table = std::array<float, 256>;

// Tables of all storage-only types, made once; a static local is initialised by one thread.
const Table& value_table(DType dtype) {
  static const auto tables = [] {
    std::array<Table, static_cast<std::size_t>(DType::f4_e2m1) + 1> out{};
    for (std::size_t t = 0; t < out.size(); ++t) {
      const auto type = static_cast<DType>(t);
      if (!is_storage_only(type)) continue;
      for (unsigned code = 0; code < 1u << bit_width(type); ++code) out[t][code] = code_value(type, code);
    }
    return out;
  }();
  return tables[static_cast<std::size_t>(dtype)];
}

template <int Bits>
void decode(const std::uint8_t* bytes, std::int64_t begin, std::int64_t count, const float* table,
            float* values) {
  // Codes are packed low bits first. Whole bytes go through the middle loop.
  constexpr std::int64_t per_byte = 8 / Bits;
  constexpr unsigned low = (1u << Bits) - 1u;
  const auto one = [&](std::int64_t i) {
    return table[(bytes[i / per_byte] >> (i % per_byte * Bits)) & low];
  };
  std::int64_t i = begin;
  const std::int64_t end = begin + count;
  for (; i < end && i % per_byte != 0; ++i) *values++ = one(i);
  for (; i + per_byte <= end; i += per_byte, values += per_byte) {
    const unsigned byte = bytes[i / per_byte];
    for (int k = 0; k < per_byte; ++k) values[k] = table[(byte >> (k * Bits)) & low];
  }
  for (; i < end; ++i) *values++ = one(i);
}

}  // namespace

// E8M0 has no mantissa and sign: decode_e8m0.
Minifloat dtype_minifloat(DType dtype) {
  return Minifloat::of(dtype == DType::f8_e4m3   ? FloatFormat{4, 3}
                       : dtype == DType::f8_e5m2 ? FloatFormat{5, 2}
                                                 : FloatFormat{2, 1});
}

void decode_values(const Tensor& codes, std::int64_t begin, std::int64_t count, float* values) {
  const float* table = value_table(codes.dtype()).data();
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw());
  switch (bit_width(codes.dtype())) {
    case 8:
      return decode<8>(bytes, begin, count, table, values);
    case 4:
      return decode<4>(bytes, begin, count, table, values);
    case 2:
      return decode<2>(bytes, begin, count, table, values);
    default:
      return decode<1>(bytes, begin, count, table, values);
  }
}

}  // namespace fq::detail
