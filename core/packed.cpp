#include "fakequant/core/packed.h"

#include "fakequant/core/check.h"
#include "fakequant/core/cuda/packed.h"

namespace fq {
namespace {

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
  if (count % per_byte == 0) return;
  unsigned bits = 0;
  for (int k = 0; k < count % per_byte; ++k) bits |= (codes[whole * per_byte + k] & low) << (k * Bits);
  out[whole] = static_cast<std::uint8_t>(bits);
}

template <int Bits>
void unpack(const std::uint8_t* packed, std::int64_t count, bool is_signed, std::uint8_t* out) {
  constexpr unsigned low = (1u << Bits) - 1u, sign = 1u << (Bits - 1);
  const unsigned flip = is_signed ? sign : 0u;
  for (std::int64_t i = 0; i < count; ++i) {
    const unsigned code = (packed[i * Bits / 8] >> (i * Bits % 8)) & low;
    out[i] = static_cast<std::uint8_t>((code ^ flip) - flip);
  }
}

template <class F>
void visit_bits(DType dtype, const char* function, F&& f) {
  switch (bit_width(dtype)) {
    case 1:
      return f(std::integral_constant<int, 1>{});
    case 2:
      return f(std::integral_constant<int, 2>{});
    case 4:
      return f(std::integral_constant<int, 4>{});
    default:
      throw ArgumentError(
          fmt::format("[{}] codes of {}: give a type of fewer than 8 bits", function, name(dtype)));
  }
}

}  // namespace

Tensor pack_codes(const Tensor& codes, DType dtype) {
  constexpr const char* where = "pack_codes";
  FQ_CHECK(codes.dtype() == DType::i8 || codes.dtype() == DType::u8, where, "the codes are {}: give i8 or u8",
           name(codes.dtype()));
  Tensor out = Tensor::empty(codes.shape(), dtype, codes.device());
  visit_bits(dtype, where, [&](auto bits) {
    if (codes.device().is_meta()) return;
    const Tensor rows = codes.to(Layout::row_major);
    if (codes.device().is_cuda()) return cuda::pack_codes(rows, out);
    pack<decltype(bits)::value>(static_cast<const std::uint8_t*>(rows.raw()), rows.numel(),
                                static_cast<std::uint8_t*>(out.mutable_raw()));
  });
  return out;
}

Tensor unpack_codes(const Tensor& packed) {
  const bool is_signed = packed.dtype() == DType::i2 || packed.dtype() == DType::i4;
  Tensor out = Tensor::empty(packed.shape(), is_signed ? DType::i8 : DType::u8, packed.device());
  visit_bits(packed.dtype(), "unpack_codes", [&](auto bits) {
    if (packed.device().is_meta()) return;
    if (packed.device().is_cuda()) return cuda::unpack_codes(packed, is_signed, out);
    unpack<decltype(bits)::value>(static_cast<const std::uint8_t*>(packed.raw()), packed.numel(), is_signed,
                                  static_cast<std::uint8_t*>(out.mutable_raw()));
  });
  return out;
}

DType packed_dtype(const Format& format) {
  if (!format.is_integer() || format.bits() > 4) return format.code_dtype();
  const bool is_unsigned = format.integer().is_unsigned;
  if (format.bits() == 2) return is_unsigned ? DType::u2 : DType::i2;
  return is_unsigned ? DType::u4 : DType::i4;
}

}  // namespace fq
