#include "fakequant/core/reference/code_values.h"

#include <array>

namespace fq::detail {
namespace {

float value_of(DType dtype, unsigned code) {
  const int bits = bit_width(dtype);
  switch (dtype) {
    case DType::f8_e4m3:
    case DType::f8_e5m2:
    case DType::f4_e2m1:
      return minifloat_of(dtype).decode(static_cast<std::uint8_t>(code));
    case DType::f8_e8m0:
      return decode_e8m0(static_cast<std::uint8_t>(code));
    case DType::i2:
    case DType::i4:
      return static_cast<float>(static_cast<int>(code) - (code >> (bits - 1) != 0 ? 1 << bits : 0));
    default:
      return static_cast<float>(code);
  }
}

using Table = std::array<float, 256>;

const Table& table_of(DType dtype) {
  static const auto tables = [] {
    std::array<Table, static_cast<std::size_t>(DType::f4_e2m1) + 1> out{};
    for (std::size_t t = 0; t < out.size(); ++t) {
      const auto type = static_cast<DType>(t);
      if (!is_storage_only(type)) continue;
      for (unsigned code = 0; code < 1u << bit_width(type); ++code) out[t][code] = value_of(type, code);
    }
    return out;
  }();
  return tables[static_cast<std::size_t>(dtype)];
}

}  // namespace

Minifloat minifloat_of(DType dtype) {
  return Minifloat::of(dtype == DType::f8_e4m3   ? FloatFormat{4, 3}
                       : dtype == DType::f8_e5m2 ? FloatFormat{5, 2}
                                                 : FloatFormat{2, 1});
}

void decode_values(const Tensor& codes, std::int64_t begin, std::int64_t count, float* values) {
  const float* table = table_of(codes.dtype()).data();
  const auto* bytes = static_cast<const std::uint8_t*>(codes.raw());
  const int bits = bit_width(codes.dtype());
  if (bits == 8) {
    for (std::int64_t k = 0; k < count; ++k) values[k] = table[bytes[begin + k]];
    return;
  }
  const unsigned low = (1u << bits) - 1u;
  for (std::int64_t i = begin * bits, k = 0; k < count; ++k, i += bits)
    values[k] = table[(bytes[i / 8] >> (i % 8)) & low];
}

}  // namespace fq::detail
