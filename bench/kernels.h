#pragma once

/// The forward kernels that kernel_rows.cpp times: x f32 to y f32 and a packed mask, one call for the whole
/// array.

#include <string>

#include "fakequant/core/tensor.h"

namespace fq::bench {

/// The range of every kernel. Values are in (-3, 3), so that some of them are clipped.
inline constexpr float kAmax = 2.7f;

struct Forward {
  Tensor x, amax, y, mask;
  void (*run)(Forward&);
  /// Names the first element of y or of the mask that differs from the scalar formula, after a run.
  std::string (*check)(const Forward&);
};

/// fake_tensor_quant, narrow, one range.
[[nodiscard]] Forward int8(std::int64_t elements);
/// With a range of 127 / 64, where ModelOpt's division and torch's multiplication give the same y.
[[nodiscard]] Forward int8_power_of_two(std::int64_t elements);
/// 2048 rows with a range each.
[[nodiscard]] Forward int8_axis0(std::int64_t elements);
/// 1024 columns with a range each.
[[nodiscard]] Forward int8_lastaxis(std::int64_t elements);
/// Blocks of 128 with a range each, codes -8 .. 7.
[[nodiscard]] Forward int4_block128(std::int64_t elements);
/// scaled_e4m3, one range.
[[nodiscard]] Forward e4m3(std::int64_t elements);
/// dynamic_block_quantize, kernel triton: E2M1 in blocks of 16, scales E4M3 found from x and one range.
[[nodiscard]] Forward nvfp4(std::int64_t elements);
/// dynamic_block_quantize: E4M3 in blocks of 32, scales powers of two found from x; one range for the mask.
[[nodiscard]] Forward mxfp8(std::int64_t elements);

/// dx = dy where the mask has a bit, +0 elsewhere.
void masked_gradient(const Tensor& dy, const Tensor& mask, Tensor& dx);

}  // namespace fq::bench
