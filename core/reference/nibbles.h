#pragma once

/// Codes of 4 bits, one a byte and packed; not a public header.

#include "fakequant/core/tensor.h"

namespace fq::detail {

/// Packs u8 codes (row-major, their low 4 bits) as i4, u4 or f4_e2m1, the even index in the low nibble.
[[nodiscard]] inline Tensor packed_nibbles(const Tensor& codes, DType dtype) {
  Tensor out = Tensor::zeros(codes.shape(), dtype, codes.device());
  if (codes.device().is_meta()) return out;
  const auto* in = codes.data<std::uint8_t>();
  auto* to = static_cast<std::uint8_t*>(out.mutable_raw());
  const std::int64_t pairs = codes.numel() / 2;
  for (std::int64_t i = 0; i < pairs; ++i)
    to[i] = static_cast<std::uint8_t>((in[2 * i] & 0xfu) | (in[2 * i + 1] << 4));
  if (codes.numel() % 2 != 0) to[pairs] = in[2 * pairs] & 0xfu;
  return out;
}

/// The nibbles of a packed tensor as u8, one a byte.
[[nodiscard]] inline Tensor unpacked_nibbles(const Tensor& packed) {
  Tensor out = Tensor::empty(packed.shape(), DType::u8, packed.device());
  if (packed.device().is_meta()) return out;
  const auto* in = static_cast<const std::uint8_t*>(packed.raw());
  auto* to = out.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < packed.numel(); ++i)
    to[i] = static_cast<std::uint8_t>((in[i / 2] >> (i % 2 * 4)) & 0xfu);
  return out;
}

}  // namespace fq::detail
