#pragma once

/// Operators that move elements without changing their values.
///
///     const Variable rows = ops::flatten(x);                            // [N, C, H, W] to [N, C*H*W]
///     const Variable both = ops::concat({x, x}, 1);                     // twice the channels
///     const Variable first = ops::slice(x, 0, 0, 1), last = ops::slice(x, 0, -1, x.dim(0));
///     const Variable padded = ops::pad(x, {{1, 1}, {1, 1}}, ops::PadMode::reflect);
///
/// Each operator takes f32 or f64, integers without gradient (token ids; except `concat`), codes, and sums
/// that are not rounded yet. Codes with one scale are moved with their grid. Their gradient is moved back,
/// and the quantizer that made the codes masks it. Codes with several scales are converted to floats. Sums
/// stay sums: the operator that reads them rounds them before the move, with the same bits as directly after
/// the layer that made them. Axes count from the front, negative ones from the back. Each function throws
/// ArgumentError for shapes and axes that do not fit.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// Returns the elements in logical row-major order in another shape. One size may be -1; it follows from the
/// others. The result is row-major. For a row-major input it is a view without a copy.
[[nodiscard]] Variable reshape(const Variable& x, Shape shape);
/// Joins the axes from `start_axis` to the last: [N, C, H, W] to [N, C*H*W]. The order is C, H, W also for a
/// channels_last input, so the weights of the next layer do not depend on the layout.
[[nodiscard]] Variable flatten(const Variable& x, int start_axis = 1);
/// Permutes axes: axis i of the output is axis `axes[i]` of x, each axis listed once. Row-major.
[[nodiscard]] Variable transpose(const Variable& x, const std::vector<int>& axes);

/// Concatenates the parts along `axis`, in the layout of the first. Their other sizes must agree. Sums, with
/// or without a pending ReLU, give an Accumulator of all parts. Codes of equal grids give codes. Any other
/// mixture is converted to floats of one dtype.
[[nodiscard]] Variable concat(const std::vector<Variable>& parts, int axis);
/// Stacks parts of one shape along a new axis, inserted before axis `axis`. Row-major.
[[nodiscard]] Variable stack(const std::vector<Variable>& parts, int axis = 0);
/// Splits x into parts with the given sizes along `axis`, in order. The sizes must add up to the size of the
/// axis.
[[nodiscard]] std::vector<Variable> split(const Variable& x, const std::vector<std::int64_t>& sizes,
                                          int axis = 0);
/// Copies every `step`-th element of [begin, end) along `axis`, in the layout of x. A negative begin or end
/// counts from the back. Indices are not clamped: an index outside of the axis is an error. A step is 1 or
/// more.
[[nodiscard]] Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end,
                             std::int64_t step = 1);
/// Returns x with element j along `axis` taken from indices[j], in the layout of x. Negative indices count
/// from the back. An element that is taken several times gets the sum of the gradients.
[[nodiscard]] Variable index_select(const Variable& x, int axis, const std::vector<std::int64_t>& indices);
/// Repeats x along its axes of size 1, and along new leading axes, to the given shape; -1 keeps a size.
[[nodiscard]] Variable expand(const Variable& x, const Shape& shape);

/// Values of the added elements: zeros or another constant, x mirrored at its border without repeating the
/// border, the repeated border, or x from the opposite side.
enum class PadMode : unsigned char { constant, reflect, replicate, circular };
/// Returns the name of the mode in files and attributes: "constant", "reflect", "replicate" or "circular".
[[nodiscard]] const char* name(PadMode mode) noexcept;
/// Adds elements around x. `sizes` has the numbers of elements before and after each of the last axes, in the
/// order of the axes; negative numbers remove elements. A constant other than 0 converts codes and sums to
/// floats. `reflect` adds fewer elements than the axis has, `circular` at most all of them.
[[nodiscard]] Variable pad(const Variable& x, const std::vector<std::array<std::int64_t, 2>>& sizes,
                           PadMode mode = PadMode::constant, double value = 0.0);

/// Rearranges [N, C*r*r, H, W] to [N, C, H*r, W*r], where r is the factor: channel c*r*r + i*r + j goes to
/// pixel (i, j) of each square (Shi et al., arXiv:1609.05158). The result is row-major.
[[nodiscard]] Variable pixel_shuffle(const Variable& x, std::int64_t factor);
/// Inverse of `pixel_shuffle`: [N, C, H*r, W*r] to [N, C*r*r, H, W].
[[nodiscard]] Variable pixel_unshuffle(const Variable& x, std::int64_t factor);

/// Resizing of images, signals and volumes.
///
///     ops::resize(x, {.sizes = {56, 56}});                                   // [N, C, 28, 28], nearest
///     ops::resize(x, {.sizes = {56, 56}, .mode = ops::ResizeMode::linear,    // bilinear, as PyTorch's
///                     .coordinates = ops::ResizeCoordinates::half_pixel});
///
/// Names and formulas follow ONNX's Resize, so import and export preserve them.

/// Interpolation of a new element: the nearest old element, or a weighted sum of 2 (linear) or 4 (cubic)
/// elements along each axis.
enum class ResizeMode : unsigned char { nearest, linear, cubic };
/// Formula that maps index i of the output along an axis to a position of the input, where `scale` is output
/// size / input size. The names are those of ONNX's Resize. PyTorch's interpolate has `half_pixel`,
/// `align_corners` and, for nearest, `asymmetric`.
enum class ResizeCoordinates : unsigned char {
  half_pixel,          ///< (i + 1/2) / scale - 1/2
  pytorch_half_pixel,  ///< as half_pixel, but 0 if the output has one element
  align_corners,       ///< i * (input - 1) / (output - 1); 0 if the output has one element
  asymmetric,          ///< i / scale
};
/// Rounding of a position in `nearest`. `prefer_floor` and `prefer_ceil` round to the nearest element and
/// differ at one half.
enum class ResizeRounding : unsigned char { prefer_floor, prefer_ceil, floor, ceil };

/// Options of `resize`. The defaults give PyTorch's nearest interpolation.
struct Resize {
  /// Sizes of the last axes, each at least 1: two for images, one for signals.
  std::vector<std::int64_t> sizes = {};
  /// Interpolation, and the positions that it reads.
  ResizeMode mode = ResizeMode::nearest;
  /// PyTorch uses half_pixel for linear and cubic.
  ResizeCoordinates coordinates = ResizeCoordinates::asymmetric;
  ResizeRounding rounding = ResizeRounding::floor;
  /// Replacements for output size / input size in `coordinates`, one for each of the sizes. Optional.
  std::vector<double> scales = {};
  /// Coefficient of cubic convolution (Keys 1981): -0.75 in PyTorch, -0.5 in other libraries.
  double cubic = -0.75;
};

/// Resizes x axis by axis. Positions outside of x read its border. x is f32 or f64, and the result has the
/// layout of x. `nearest` moves elements by the rules of ops/shape.h: codes stay codes and sums stay sums.
/// The other modes convert to floats. There is no antialiasing when an image becomes smaller. Throws
/// ArgumentError for sizes or scales that do not fit, and for an axis without elements.
[[nodiscard]] Variable resize(const Variable& x, const Resize& options);

/// Networks with several inputs: each sample is one row with the values of all inputs, and each input is a
/// part of that row.
///
///     const Variable image = ops::input_part(row, {.begin = 0, .shape = {3, 8, 8}, .name = "image"});
///     const Variable ids = ops::input_part(row, {.begin = 192, .shape = {16}, .name = "ids", .type =
///     "i64"});

/// Range of the row that holds one input, and the properties of that input in an exported file.
struct InputPart {
  std::int64_t begin = 0;  ///< index of the first element
  Shape shape = {};        ///< shape of one sample; empty for one number per sample, [N]
  std::string name = {};   ///< name of the exported input
  /// Element type of the exported input: "f32", "f64", "f16", "i8", "u8", "i16", "i32", "i64" or "bool".
  std::string type = "f32";
};

/// Returns the allowed types of an input.
[[nodiscard]] const std::vector<std::string>& input_part_types();

/// Returns elements [begin, begin + numel(shape)) of each row of x: [N, K] to [N, shape..]. x is f32 or f64,
/// or integers, which become f32 (exact up to 2^24). The values are taken from the row, and `type` does not
/// change them. The quantizers of different parts are independent. Throws ArgumentError if x does not have
/// two axes, if a part is empty or exceeds the row, or if the type is not one of `input_part_types`.
[[nodiscard]] Variable input_part(const Variable& x, const InputPart& part);

}  // namespace fq::ops
