#pragma once

/// The windows of convolutions and pools.

#include <vector>

#include "fakequant/export/onnx/reader/node_reader.h"
#include "fakequant/layers/model/model_node.h"

namespace fq::detail {

/// Along each axis of the image. `before` and `after` are pads.
struct Window {
  std::vector<std::int64_t> kernel, stride, dilation, before, after;

  [[nodiscard]] bool equal_pads() const { return before == after; }
  /// Pixels from its first tap to behind its last.
  [[nodiscard]] std::int64_t extent(std::size_t axis) const {
    return dilation[axis] * (kernel[axis] - 1) + 1;
  }
};

/// Strides, dilations and pads of a node, `auto_pad` computed for an image of that size. Throws ArgumentError
/// for attributes that do not fit, and negative pads.
[[nodiscard]] Window read_window(const NodeReader& node, std::vector<std::int64_t> kernel,
                                 const std::vector<std::int64_t>& image);

/// One number when all are the same, as model files have it.
[[nodiscard]] NodeOption one_or_list(const std::vector<std::int64_t>& sizes);

}  // namespace fq::detail
