#pragma once

/// Shapes: logical sizes along each axis, outermost first. A 4-D activation is always N, C, H, W, whatever
/// its layout in memory.
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

/// Sizes along each axis, none negative; an empty list is rank 0, which has one element. A size of 0 is
/// allowed: such a tensor has no elements.
using Shape = std::vector<std::int64_t>;

/// How the elements of a dense tensor lie in memory. Shapes and axes never depend on it.
enum class Layout : unsigned char {
  row_major,      ///< the last axis is contiguous
  channels_last,  ///< 4-D only: N, H, W, C in memory
};

/// "row_major" or "channels_last".
[[nodiscard]] std::string_view name(Layout layout) noexcept;

/// The product of the sizes; 1 for a shape of rank 0. Throws ArgumentError on a negative size and past 2^63.
[[nodiscard]] std::int64_t numel(const Shape& shape);
/// "[64, 3, 28, 28]", as messages print it.
[[nodiscard]] std::string to_string(const Shape& shape);
/// `axis` counted from the front, where negative ones count from the back. Throws ArgumentError in the name
/// of `function` when it is out of range.
[[nodiscard]] int normalize_axis(int axis, int rank, std::string_view function);
/// The shape that both broadcast to by NumPy's rule: aligned at the last axis, where a size of 1 or a missing
/// axis repeats. Throws ArgumentError in the name of `function`, naming both, when two sizes differ and
/// neither is 1.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view function);

/// A shape seen around one axis: element (o, i, n) lies at (o * size + i) * inner + n in row-major order, so
/// that loops over an axis need no strides.
struct AxisView {
  std::int64_t outer, size, inner;
};
/// The view around `axis`, which counts from the front.
[[nodiscard]] AxisView axis_view(const Shape& shape, int axis);

/// Granularity: the block shape that says which elements share a scale.
///
///     const auto groups = Granularity::per_group(128);  // along the last axis
///     groups.block_shape({64, 1024});                   // [1, 128]
///     groups.scale_shape({64, 1024});                   // [64, 8]
///
/// The usual ones: per tensor for activations, per axis 0 for the weights of linear layers and convolutions,
/// groups of 16 to 128 along the last axis for INT4, NVFP4 and MX.

/// Which elements share a scale: how many along each axis. It is one concept for per tensor, per axis, per
/// group and 2-D, and belongs to no tensor: axes are checked when a shape is given.
class Granularity {
 public:
  /// The length of a block that is as long as its axis.
  static constexpr std::int64_t whole = -1;  ///< a block as long as its axis

  /// One scale for everything.
  Granularity() = default;
  [[nodiscard]] static Granularity per_tensor() { return {}; }
  /// One scale for each index of the kept axes; negative axes count from the back.
  [[nodiscard]] static Granularity per_axis(std::vector<int> axes);
  /// The same for one axis: `per_axis(0)` is per output channel of a weight.
  [[nodiscard]] static Granularity per_axis(int axis) { return per_axis(std::vector<int>{axis}); }
  /// One scale for every `length` elements along `axis`, in every row of the other axes. Throws ArgumentError
  /// for a length that is neither positive nor `whole`, as the next two do.
  [[nodiscard]] static Granularity per_group(std::int64_t length, int axis = -1);
  /// One scale for each block of these lengths; axes not named have blocks of 1.
  [[nodiscard]] static Granularity blocks(const std::map<int, std::int64_t>& lengths);
  /// One scale for each block of rows x columns of the last two axes, as FP8 weights in blocks of 128 x 128
  /// have them.
  [[nodiscard]] static Granularity blocks_2d(std::int64_t rows, std::int64_t columns);

  /// Whether everything shares one scale, whatever the shape.
  [[nodiscard]] bool is_per_tensor() const noexcept { return lengths_.empty() && rest_ == whole; }
  /// The one kept axis of a per-axis granularity in a tensor of that rank, counted from the front; -1 for any
  /// other granularity.
  [[nodiscard]] int single_axis(int rank) const;
  /// Elements along each axis that share a scale. Throws ArgumentError when an axis is not one of the
  /// tensor's.
  [[nodiscard]] Shape block_shape(const Shape& tensor) const;
  /// Scales along each axis: ceil(size / block), so that a last block may be partial.
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
