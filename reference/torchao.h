#pragma once

/// torchao's granularities: which elements share a scale, said as the shape of a block.

#include <variant>

#include "fakequant/core/blocks/granularity.h"

namespace fq::torchao {

struct PerTensor {};
struct PerAxis {
  int axis;
};
/// Groups of `group_size` along the last axis.
struct PerGroup {
  std::int64_t group_size;
};
/// One scale for each row of the last axis.
struct PerRow {};
/// As PerRow: a token is a row of features.
struct PerToken {};
struct PerBlock {
  Shape block_size;
};
using Granularity = std::variant<PerTensor, PerAxis, PerGroup, PerRow, PerToken, PerBlock>;

/// How many elements along each axis share a scale. Throws ArgumentError for an axis that is not there, a
/// block of another rank, or one that does not divide the shape.
[[nodiscard]] Shape get_block_size(const Shape& input_shape, const Granularity& granularity);
/// How many scales there are along each axis. Throws ArgumentError, in the name of `function`, for a block of
/// another rank or one that does not divide the shape; one as long as its axis always does.
[[nodiscard]] Shape scale_shape(const Shape& input_shape, const Shape& block_size,
                                std::string_view function = "torchao.get_block_size");

}  // namespace fq::torchao
