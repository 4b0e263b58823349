#pragma once

/// Images, signals and volumes brought to another size.
///
///     ops::resize(x, {.sizes = {56, 56}});                                   // [N, C, 28, 28], nearest
///     ops::resize(x, {.sizes = {56, 56}, .mode = ops::ResizeMode::linear,    // bilinear, as PyTorch's
///                     .coordinates = ops::ResizeCoordinates::half_pixel});
///
/// Names and formulas are those of ONNX's Resize, so that files come in and go out as they are.

#include <cstdint>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// How a new element is made of old ones: the nearest of them, or a mixture of 2 (linear) or 4 (cubic) along
/// each axis.
enum class ResizeMode : unsigned char { nearest, linear, cubic };
/// Which place x of the input an output element i of an axis stands for, where `scale` is output size / input
/// size: the names are those of ONNX's Resize. PyTorch's interpolate has `half_pixel`, `align_corners` and,
/// for nearest, `asymmetric`.
enum class ResizeCoordinates : unsigned char {
  half_pixel,          ///< (i + 1/2) / scale - 1/2
  pytorch_half_pixel,  ///< the same; 0 where the output has one element
  align_corners,       ///< i * (input - 1) / (output - 1); 0 where the output has one element
  asymmetric,          ///< i / scale
};
/// How `nearest` rounds a place between two elements; `prefer_floor` and `prefer_ceil` round to the nearest
/// and decide at one half.
enum class ResizeRounding : unsigned char { prefer_floor, prefer_ceil, floor, ceil };

/// What is to be made of the last axes. The defaults are those of PyTorch's nearest interpolation.
struct Resize {
  /// The sizes of the last axes, each at least 1: two for images, one for signals.
  std::vector<std::int64_t> sizes = {};
  /// How new elements are made, and where they look.
  ResizeMode mode = ResizeMode::nearest;
  ResizeCoordinates coordinates = ResizeCoordinates::asymmetric;  ///< half_pixel is torch's for linear, cubic
  ResizeRounding rounding = ResizeRounding::floor;
  /// Factors that take the place of output size / input size in `coordinates`, one for each of the sizes.
  std::vector<double> scales = {};
  /// The coefficient of cubic convolution (Keys 1981): -0.75 is PyTorch's, -0.5 that of others.
  double cubic = -0.75;
};

/// x at the sizes of the options, axis by axis; places outside of x are its border's. f32 or f64, in x's
/// layout. `nearest` moves elements as ops/shape.h says, so that codes stay codes and sums sums; the others
/// read floats. Nothing is smoothed before an image is made smaller. Throws ArgumentError for sizes or scales
/// that do not fit and for an axis without elements.
[[nodiscard]] Variable resize(const Variable& x, const Resize& options);

}  // namespace fq::ops
