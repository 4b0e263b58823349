#include "fakequant/core/backend/cuda/loops/launch.cuh"
#include "fakequant/core/backend/cuda/loops/tensor_data.h"
#include "fakequant/core/backend/kernel_columns.h"

namespace fq::cuda {
namespace {

/// Packs one byte of codes.
struct Packing {
  std::int64_t count;  // number of codes
  int bits;

  [[nodiscard]] FQ_HD int per_byte() const { return 8 / bits; }
  [[nodiscard]] FQ_HD unsigned low() const { return (1u << bits) - 1u; }
};

// One thread per byte of the result: no two threads write the same byte.
struct PackCodes {
  Packing packing;
  const std::uint8_t* codes;
  std::uint8_t* out;
  FQ_HD void operator()(std::int64_t byte) const {
    unsigned packed = 0;
    for (int k = 0; k < packing.per_byte(); ++k)
      // The upper bits of the last byte are 0.
      if (const std::int64_t i = byte * packing.per_byte() + k; i < packing.count)
        packed |= (codes[i] & packing.low()) << (k * packing.bits);
    out[byte] = static_cast<std::uint8_t>(packed);
  }
};

// (code ^ sign) - sign extends the sign of a two's complement code.
struct UnpackCodes {
  Packing packing;
  const std::uint8_t* packed;
  unsigned sign;  // sign bit, or 0 for unsigned codes
  std::uint8_t* out;
  FQ_HD void operator()(std::int64_t byte) const {
    const unsigned codes = packed[byte];
    for (int k = 0; k < packing.per_byte(); ++k)
      if (const std::int64_t i = byte * packing.per_byte() + k; i < packing.count)
        out[i] = static_cast<std::uint8_t>(((codes >> (k * packing.bits) & packing.low()) ^ sign) - sign);
  }
};

}  // namespace

void pack_codes(const Tensor& codes, Tensor& out) {
  launch_each(out.device(), out.nbytes(),
              PackCodes{{codes.numel(), bit_width(out.dtype())},
                        device_data<std::uint8_t>(codes),
                        mutable_device_data<std::uint8_t>(out)});
}

void unpack_codes(const Tensor& packed, bool is_signed, Tensor& out) {
  const int bits = bit_width(packed.dtype());
  launch_each(out.device(), packed.nbytes(),
              UnpackCodes{{out.numel(), bits},
                          device_data<std::uint8_t>(packed),
                          is_signed ? 1u << (bits - 1) : 0u,
                          mutable_device_data<std::uint8_t>(out)});
}

}  // namespace fq::cuda
