#pragma once

/// Detection of samples whose layout differs from the expected layout.

#include <cstddef>
#include <span>
#include <string>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/dtype.h"

namespace fq::detail {

enum class ChannelsLast { no, perhaps, surely };

/// Returns whether a sample [a, b, c], read as [C, H, W], looks like [H, W, C]: 1, 3 or 4 at the end, and
/// more than 4 before. The answer is certain if a = b, or for 3 and 4 at the end, because images do not have
/// this width.
[[nodiscard]] ChannelsLast looks_channels_last(const Shape& sample);

/// Returns the NumPy call that converts samples of shape `sample` to `wanted`: "write x.transpose(0, 3, 1,
/// 2)", "write x.reshape(-1, 1, 28, 28)"; empty if no call does.
[[nodiscard]] std::string way_to_shape(const Shape& sample, const Shape& wanted);

/// Returns whether stored values look like pixels from 0 to 255: no value is negative, and the largest is 128
/// to 255. `bytes` are rows of `dtype`.
[[nodiscard]] bool looks_like_bytes(std::span<const std::byte> bytes, DType dtype);

/// Returns whether samples of this type are token ids. Images and signals are bytes or floats.
[[nodiscard]] constexpr bool is_of_ids(DType dtype) noexcept {
  return dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
}

}  // namespace fq::detail
