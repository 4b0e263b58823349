#pragma once

/// Fake quantization on a device, as reference/kernels/cpu/fake_quant.h has it, with its bits. Ranges (amax
/// and bound) may be on the host.

#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq::cuda {

/// `amax` is on the host.
void fake_quant_integer(const Tensor& x, const Tensor& amax, const Tensor& bound, const IntFormat& format,
                        Tensor& y, Tensor* mask);
void integer_codes(const Tensor& x, const Tensor& amax, const IntFormat& format, Tensor& codes);
void fake_quant_e4m3(const Tensor& x, const Tensor& amax, const Tensor& bound, Tensor& y, Tensor* mask);
void round_to_integers(const Tensor& x, float lower, float upper, Tensor& y, Tensor* mask);

/// Waits for it.
[[nodiscard]] float smallest(const Tensor& x);

}  // namespace fq::cuda
