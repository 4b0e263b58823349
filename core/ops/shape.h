#pragma once

/// Operators that move elements and compute nothing.
///
///     const Variable rows = ops::flatten(x);                            // [N, C, H, W] to [N, C*H*W]
///     const Variable both = ops::concat({x, x}, 1);                     // twice the channels
///     const Variable first = ops::slice(x, 0, 0, 1), last = ops::slice(x, 0, -1, x.dim(0));
///     const Variable padded = ops::pad(x, {{1, 1}, {1, 1}}, ops::PadMode::reflect);
///
/// They take f32 or f64, integers without gradient (token ids; not `concat`), codes, and sums not yet
/// rounded. Codes with one scale are moved with their grid (the gradient is moved back; the quantizer that
/// made the codes masks it); codes with several scales are read as floats. Sums stay sums: who reads them
/// rounds them before they are moved, with the bits that it would have given right behind the layer that made
/// them. Axes count from the front, negative ones from the back. All throw ArgumentError for shapes and axes
/// that do not fit.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq::ops {

/// The same elements in logical row-major order in another shape; one size may be -1 and follows from the
/// others. The result is row-major, and for a row-major input it is a view: nothing is copied.
[[nodiscard]] Variable reshape(const Variable& x, Shape shape);
/// Axes from `start_axis` on joined to one, [N, C, H, W] to [N, C*H*W]. The order is C, H, W also where x is
/// channels_last, so that weights of the next layer mean the same.
[[nodiscard]] Variable flatten(const Variable& x, int start_axis = 1);
/// The output's axis i is x's axis `axes[i]`, each axis named once; row-major.
[[nodiscard]] Variable transpose(const Variable& x, const std::vector<int>& axes);

/// The parts side by side along `axis`, in the layout of the first; their other sizes must agree. Sums, with
/// a pending ReLU or without, give an Accumulator of all of them; codes of equal grids give such codes; any
/// other mixture is read as floats, of one dtype.
[[nodiscard]] Variable concat(const std::vector<Variable>& parts, int axis);
/// Parts of one shape side by side along a new axis before axis `axis` of them; row-major.
[[nodiscard]] Variable stack(const std::vector<Variable>& parts, int axis = 0);
/// Parts of those sizes along `axis`, in their order; the sizes must add up to that of the axis.
[[nodiscard]] std::vector<Variable> split(const Variable& x, const std::vector<std::int64_t>& sizes,
                                          int axis = 0);
/// Every `step`-th of the elements [begin, end) along `axis`, copied, in x's layout. A negative begin or end
/// counts from the back; nothing is clamped, so that a place outside of the axis is an error. A step is 1 or
/// more.
[[nodiscard]] Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end,
                             std::int64_t step = 1);
/// Element j along `axis` is x's element indices[j], in x's layout; negative ones count from the back. An
/// element that is taken several times gets the sum of the gradients.
[[nodiscard]] Variable index_select(const Variable& x, int axis, const std::vector<std::int64_t>& indices);
/// x repeated along its axes of size 1, and along new ones in front, to that shape; -1 keeps a size.
[[nodiscard]] Variable expand(const Variable& x, const Shape& shape);

/// What stands in the elements that are added: zeros or another constant, x mirrored at its border without
/// the border, the border repeated, or x from the other side.
enum class PadMode : unsigned char { constant, reflect, replicate, circular };
/// The mode's word in files and attributes: "constant", "reflect", "replicate" or "circular".
[[nodiscard]] const char* name(PadMode mode) noexcept;
/// x with elements added around it. `sizes` has those before and after each of the last axes, in the order of
/// the axes; negative ones cut off. A constant that is not 0 makes floats of codes and sums. `reflect` adds
/// fewer elements than an axis has, `circular` as many at most.
[[nodiscard]] Variable pad(const Variable& x, const std::vector<std::array<std::int64_t, 2>>& sizes,
                           PadMode mode = PadMode::constant, double value = 0.0);

/// [N, C*r*r, H, W] to [N, C, H*r, W*r], r the factor: channel c*r*r + i*r + j goes to pixels (i, j) of each
/// square (Shi et al., arXiv:1609.05158). The result is row-major.
[[nodiscard]] Variable pixel_shuffle(const Variable& x, std::int64_t factor);
/// The way back: [N, C, H*r, W*r] to [N, C*r*r, H, W].
[[nodiscard]] Variable pixel_unshuffle(const Variable& x, std::int64_t factor);

/// Resizing of images, signals and volumes.
///
///     ops::resize(x, {.sizes = {56, 56}});                                   // [N, C, 28, 28], nearest
///     ops::resize(x, {.sizes = {56, 56}, .mode = ops::ResizeMode::linear,    // bilinear, as PyTorch's
///                     .coordinates = ops::ResizeCoordinates::half_pixel});
///
/// Names and formulas follow ONNX's Resize, so that import and export keep them.

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

/// Networks of several inputs: their values lie side by side in one row for each sample, and each input is a
/// part of that row.
///
///     const Variable image = ops::input_part(row, {.begin = 0, .shape = {3, 8, 8}, .name = "image"});
///     const Variable ids = ops::input_part(row, {.begin = 192, .shape = {16}, .name = "ids", .type = "i64"});

/// Which elements of a row are an input, and what that input is in an exported file.
struct InputPart {
  std::int64_t begin = 0;  ///< its first element
  Shape shape = {};        ///< of one sample; empty for one number a sample, [N]
  std::string name = {};   ///< of the exported input
  /// The exported input's elements: "f32", "f64", "f16", "i8", "u8", "i16", "i32", "i64" or "bool".
  std::string type = "f32";
};

/// The types that an input may have.
[[nodiscard]] const std::vector<std::string>& input_part_types();

/// Elements [begin, begin + numel(shape)) of each row of x, [N, K] to [N, shape..]. x is f32 or f64, or
/// integers, which become f32, so that whole numbers are exact up to 2^24. The values are those of the row
/// whatever `type` says. A quantizer behind one part has nothing to do with those behind others. Throws
/// ArgumentError for an x that has not two axes, a part that is empty or not within the row, and a type that
/// is none of those.
[[nodiscard]] Variable input_part(const Variable& x, const InputPart& part);

}  // namespace fq::ops
