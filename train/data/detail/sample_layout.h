#pragma once

/// Samples that look like something else than they are read as.

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/dtype.h"

namespace fq::detail {

enum class ChannelsLast { no, perhaps, surely };

/// Whether a sample [a, b, c], read as [C, H, W], looks like [H, W, C]: 1, 3 or 4 at the end, more before.
/// Sure where a = b, or for 3 and 4: nobody has images of that width.
[[nodiscard]] ChannelsLast looks_channels_last(const Shape& sample);

/// What makes samples of shape `sample` ones of `wanted`, in NumPy: "write x.transpose(0, 3, 1, 2)", "write
/// x.reshape(-1, 1, 28, 28)"; empty when nothing does.
[[nodiscard]] std::string way_to_shape(const Shape& sample, const Shape& wanted);

/// Whether values, as stored, look like pixels from 0 to 255: none is negative, the largest is 128 to 255.
/// `bytes` of rows of `dtype`.
[[nodiscard]] bool looks_like_bytes(std::span<const std::byte> bytes, DType dtype);

/// Whether samples of that type are token ids: images and signals are bytes or floats.
[[nodiscard]] constexpr bool is_of_ids(DType dtype) noexcept {
  return dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i64;
}

}  // namespace fq::detail
