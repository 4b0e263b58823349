#pragma once

/// Shapes: logical sizes along each axis, outermost first. A 4-D activation is always N, C, H, W in any
/// memory layout.
///
///     const Shape image{1, 3, 32, 32};
///     const std::int64_t elements = numel(image);          // 3072
///     const int last = normalize_axis(-1, 4, "my_op");     // 3

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fq {

/// Sizes along each axis, none negative. An empty list has rank 0 and one element. A tensor with a size of 0
/// has no elements.
using Shape = std::vector<std::int64_t>;

/// Memory order of a dense tensor. Shapes and axes do not depend on it.
enum class Layout : unsigned char {
  row_major,      ///< the last axis is contiguous
  channels_last,  ///< 4-D only: N, H, W, C in memory
};

/// "row_major" or "channels_last".
[[nodiscard]] std::string_view name(Layout layout) noexcept;

/// Returns the product of the sizes; 1 for rank 0. Throws ArgumentError for a negative size and above 2^63.
[[nodiscard]] std::int64_t numel(const Shape& shape);
/// Text for messages: "[64, 3, 28, 28]".
[[nodiscard]] std::string to_string(const Shape& shape);
/// Returns `axis` counted from the front; negative axes count from the back. Throws ArgumentError that names
/// `function` if the axis is out of range.
[[nodiscard]] int normalize_axis(int axis, int rank, std::string_view function);
/// Returns the shape that both shapes broadcast to by NumPy's rule: aligned at the last axis, with sizes of
/// 1 and missing axes repeated. Throws ArgumentError that names `function` and both shapes if two sizes
/// differ and neither is 1.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view function);

/// A shape split around one axis: element (o, i, n) has index (o * size + i) * inner + n in row-major order.
/// Loops over an axis then need no strides.
struct AxisView {
  std::int64_t outer, size, inner;
};
/// Returns the split around `axis`, counted from the front.
[[nodiscard]] AxisView axis_view(const Shape& shape, int axis);

/// Granularity: the shape of the blocks that share a scale.
///
///     const auto groups = Granularity::per_group(128);  // along the last axis
///     groups.block_shape({64, 1024});                   // [1, 128]
///     groups.scale_shape({64, 1024});                   // [64, 8]
///
/// Common choices: per tensor for activations; per axis 0 for the weights of linear layers and convolutions;
/// groups of 16 to 128 along the last axis for INT4, NVFP4 and MX.

/// Number of elements along each axis that share a scale. Covers per tensor, per axis, per group and 2-D
/// blocks. Independent of a tensor: axes are checked once a shape is given.
class Granularity {
 public:
  /// Length of a block that spans its whole axis.
  static constexpr std::int64_t whole = -1;  ///< a block as long as its axis

  /// One scale for the whole tensor.
  Granularity() = default;
  [[nodiscard]] static Granularity per_tensor() { return {}; }
  /// One scale per index of the kept axes; negative axes count from the back.
  [[nodiscard]] static Granularity per_axis(std::vector<int> axes);
  /// As above for one axis: `per_axis(0)` is per output channel of a weight.
  [[nodiscard]] static Granularity per_axis(int axis) { return per_axis(std::vector<int>{axis}); }
  /// One scale per `length` elements along `axis`, in every row of the other axes. As the next two
  /// functions, throws ArgumentError for a length that is neither positive nor `whole`.
  [[nodiscard]] static Granularity per_group(std::int64_t length, int axis = -1);
  /// One scale per block of these lengths; axes not named have blocks of 1.
  [[nodiscard]] static Granularity blocks(const std::map<int, std::int64_t>& lengths);
  /// One scale per block of rows x columns of the last two axes, for example FP8 weights in blocks of 128 x
  /// 128.
  [[nodiscard]] static Granularity blocks_2d(std::int64_t rows, std::int64_t columns);

  /// Whether all elements of any tensor share one scale.
  [[nodiscard]] bool is_per_tensor() const noexcept { return lengths_.empty() && rest_ == whole; }
  /// Returns the kept axis of a granularity per one axis in a tensor of this rank, counted from the front;
  /// -1 for any other granularity.
  [[nodiscard]] int single_axis(int rank) const;
  /// Returns the number of elements along each axis that share a scale. Throws ArgumentError if the tensor
  /// does not have an axis.
  [[nodiscard]] Shape block_shape(const Shape& tensor) const;
  /// Returns the number of scales along each axis: ceil(size / block); the last block may be partial.
  [[nodiscard]] Shape scale_shape(const Shape& tensor) const;
  friend bool operator==(const Granularity&, const Granularity&) = default;
  friend std::string to_string(const Granularity& granularity);

 private:
  std::vector<std::pair<int, std::int64_t>> lengths_;  // axis -> length, sorted
  std::int64_t rest_ = whole;                          // length along every other axis
};

/// "per tensor", "per axis 0", "per axis 0, 2", "in blocks of 16 on axis 1"
[[nodiscard]] std::string to_string(const Granularity& granularity);

}  // namespace fq
