#include <cstdint>
#include <type_traits>

#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cpu {
namespace {

// Element 0 is in the low bits of byte 0, as in ONNX.
template <int Bits>
void pack(const std::uint8_t* codes, std::int64_t count, std::uint8_t* __restrict out) {
  constexpr int per_byte = 8 / Bits;
  constexpr unsigned low = (1u << Bits) - 1u;
  const std::int64_t whole = count / per_byte;
  for (std::int64_t i = 0; i < whole; ++i) {
    unsigned bits = 0;
    for (int k = 0; k < per_byte; ++k) bits |= (codes[i * per_byte + k] & low) << (k * Bits);
    out[i] = static_cast<std::uint8_t>(bits);
  }
  // The last byte is partial: its upper bits are 0.
  if (count % per_byte == 0) return;
  unsigned bits = 0;
  for (int k = 0; k < count % per_byte; ++k) bits |= (codes[whole * per_byte + k] & low) << (k * Bits);
  out[whole] = static_cast<std::uint8_t>(bits);
}

// Bits is a constant, so that the compiler can vectorize the shifts.
template <int Bits>
void unpack(const std::uint8_t* packed, std::int64_t count, bool is_signed, std::uint8_t* out) {
  constexpr unsigned low = (1u << Bits) - 1u, sign = 1u << (Bits - 1);
  // (code ^ sign) - sign extends the sign of a two's complement code.
  const unsigned flip = is_signed ? sign : 0u;
  for (std::int64_t i = 0; i < count; ++i) {
    const unsigned code = (packed[i * Bits / 8] >> (i * Bits % 8)) & low;
    out[i] = static_cast<std::uint8_t>((code ^ flip) - flip);
  }
}

template <class F>
void visit_bits(DType dtype, F&& f) {
  switch (bit_width(dtype)) {
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 2:
      return f(std::integral_constant<int, 2>{});
    default:
      return f(std::integral_constant<int, 4>{});
  }
}

}  // namespace

void pack_codes(const Tensor& codes, Tensor& out) {
  visit_bits(out.dtype(), [&](auto bits) {
    pack<decltype(bits)::value>(static_cast<const std::uint8_t*>(codes.raw()), codes.numel(),
                                static_cast<std::uint8_t*>(out.mutable_raw()));
  });
}

void unpack_codes(const Tensor& packed, bool is_signed, Tensor& out) {
  visit_bits(packed.dtype(), [&](auto bits) {
    unpack<decltype(bits)::value>(static_cast<const std::uint8_t*>(packed.raw()), packed.numel(), is_signed,
                                  static_cast<std::uint8_t*>(out.mutable_raw()));
  });
}

}  // namespace fq::cpu
