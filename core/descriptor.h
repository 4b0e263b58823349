#pragma once

/// QuantDescriptor: describes how to quantize a tensor. Fields, defaults and meaning match ModelOpt's
/// ScaledQuantDescriptor, so ModelOpt configurations can be read unchanged.
///
///     const QuantDescriptor weights({.num_bits = 8, .axis = 0, .narrow_range = true});  // a scale a channel
///     const QuantDescriptor fp8({.num_bits = {4, 3}});                                  // E4M3, per tensor
///     const QuantDescriptor int4({.num_bits = 4, .block_sizes = {.lengths = {{-1, 128}}}});
///     const bool same = QuantDescriptor::from_json(weights.to_json()) == weights;       // true
///
/// A TensorQuantizer (layers/quantizer/tensor_quantizer.h) takes a descriptor. Rules of a quantization
/// config set its fields by name (layers/config/quant_config.h).

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fakequant/core/blocks/shape.h"
#include "fakequant/core/format.h"
#include "fakequant/core/tensor.h"

namespace fq {

/// Field types of QuantDescriptor. Each converts from a plain number, list or tensor.
///
///     NumBits e4m3 = {4, 3};
///     Axes rows_and_columns = {0, 1};
///     Amax ranges = {0.5, 1.25};
///     BlockSizes nvfp4{.lengths = {{-1, 16}}, .type = BlockType::dynamic, .scale_bits = NumBits(4, 3)};
///
/// These types do not check their values. The constructor of QuantDescriptor rejects invalid ones.

/// Bits of an integer format (`8`), or {exponent, mantissa} bits of a float format (`{4, 3}`). As in
/// ModelOpt, the sign bit of a float is not counted.
class NumBits {
 public:
  /// An integer format: `8`.
  constexpr NumBits(int bits = 8) noexcept
      : bits_(bits) {}  // NOLINT(google-explicit-constructor): written as 8
  /// A float format: `{4, 3}` is E4M3; `{8, 0}` is a power of two, the scale format of MX blocks.
  constexpr NumBits(int exponent, int mantissa) noexcept : bits_(exponent), mantissa_(mantissa) {}

  /// Whether the format is an integer (one number was given).
  [[nodiscard]] constexpr bool is_integer() const noexcept { return !mantissa_.has_value(); }
  /// Bits per code: the integer's bits, or 1 + exponent + mantissa for a float format.
  [[nodiscard]] constexpr int bits() const noexcept { return is_integer() ? bits_ : 1 + bits_ + *mantissa_; }
  /// Bits of the exponent of a float format; 0 for an integer format.
  [[nodiscard]] constexpr int exponent() const noexcept { return is_integer() ? 0 : bits_; }
  /// Bits of the mantissa of a float format; 0 for an integer format.
  [[nodiscard]] constexpr int mantissa() const noexcept { return mantissa_.value_or(0); }
  friend bool operator==(const NumBits&, const NumBits&) = default;

 private:
  int bits_;
  std::optional<int> mantissa_;
};
/// "8", "(4, 3)"
[[nodiscard]] std::string to_string(const NumBits& bits);

/// The kept axes: one amax per index along them, or per combination of indices with several axes. Empty
/// means per tensor. Written as `0`, `{0, 1}` or `{}`. Negative axes count from the back. An int equals a
/// list with this int.
class Axes {
 public:
  /// Zero, one or several axes, written `{}`, `0` and `{0, 1}`.
  Axes() = default;
  Axes(int axis) : values_{axis} {}                          // NOLINT(google-explicit-constructor)
  Axes(std::initializer_list<int> axes) : values_(axes) {}   // NOLINT(google-explicit-constructor)
  Axes(std::vector<int> axes) : values_(std::move(axes)) {}  // NOLINT(google-explicit-constructor)

  /// Whether no axis is kept (per tensor).
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  /// The axes as given: not sorted, negative axes unchanged.
  [[nodiscard]] const std::vector<int>& values() const noexcept { return values_; }
  friend bool operator==(const Axes&, const Axes&) = default;

 private:
  std::vector<int> values_;
};

/// A fixed range: a number, a list, or a tensor that broadcasts against the input. The values are copied to
/// the CPU as f32. Copying from a GPU waits for the GPU.
class Amax {
 public:
  /// A number, a list along one axis, or a tensor; undefined by default. Values are rounded to f32.
  Amax() = default;
  Amax(double value);                          // NOLINT(google-explicit-constructor)
  Amax(std::initializer_list<double> values);  // NOLINT(google-explicit-constructor)
  Amax(const std::vector<float>& values);      // NOLINT(google-explicit-constructor)
  Amax(const Tensor& values);                  // NOLINT(google-explicit-constructor): copied

  /// Whether a range was given.
  [[nodiscard]] bool defined() const noexcept { return value_.defined(); }
  /// Returns a copy of the values, of rank 0 for a number; undefined if no range was given.
  [[nodiscard]] Tensor tensor() const { return defined() ? value_.clone() : Tensor{}; }
  /// Shape of the given range: rank 0 for a number, one axis for a list.
  [[nodiscard]] const Shape& shape() const noexcept { return value_.shape(); }
  /// The values in row-major order, valid for the lifetime of this object.
  [[nodiscard]] std::span<const float> values() const;
  friend bool operator==(const Amax& a, const Amax& b);

 private:
  Tensor value_;
};

/// Whether block ranges are fixed (from calibration or a weight) or computed from each input.
enum class BlockType : unsigned char { fixed, dynamic };

/// Blocks that share a scale. A length of -1 means the whole axis. Axes without a length have blocks of 1,
/// so `{{-1, 32}}` means 32 neighbours in each row.
struct BlockSizes {
  std::map<int, std::int64_t> lengths = {};            ///< axis -> elements
  BlockType type = BlockType::fixed;                   ///< "static" or "dynamic" in files
  std::optional<NumBits> scale_bits = {};              ///< format of the scales: {4, 3} or {8, 0}
  std::map<int, std::int64_t> scale_block_sizes = {};  ///< axis -> blocks that share a scale of scales

  [[nodiscard]] bool empty() const noexcept { return lengths.empty(); }
  friend bool operator==(const BlockSizes&, const BlockSizes&) = default;
};

/// Fields of a descriptor with their defaults, for designated initializers. The constructor of
/// QuantDescriptor lists the invalid combinations.
struct QuantDescriptorOptions {
  /// Bits per code: 2 to 16 for integers, or {exponent, mantissa} of a float format.
  NumBits num_bits = 8;
  /// Name of the quantizer in messages. Does not affect results.
  std::string name = {};
  /// Whether the quantizer returns values on the grid. If false, it returns the codes as a plain tensor
  /// without gradient; its `scale()` is the step of the codes.
  bool fake_quant = true;
  /// The kept axes: each index along them has its own range. Empty means per tensor.
  Axes axis = {};
  /// Blocks that share a range. Excludes `axis`.
  BlockSizes block_sizes = {};
  /// The range, in the unit of the input. Values outside the range are clipped. A given range overrides
  /// `axis` and is not calibrated.
  Amax amax = {};
  /// Whether amax becomes a parameter that is trained with the others once it has a value.
  bool learn_amax = false;
  /// Factor on amax at each use; must be above 0. The stored amax does not change.
  std::optional<double> scale_amax = {};
  /// How calibration chooses amax: one of calib_methods(). `make_calibrator` (calib/calibrator.h) describes
  /// the methods.
  std::string calib_method = "max";
  /// Whether codes are non-negative. The key in files is "unsigned".
  bool is_unsigned = false;
  /// Whether to exclude the lowest signed code, which makes the grid symmetric: -127 .. 127.
  bool narrow_range = false;
  /// Whether to compute amax from each input. Requires no calibration.
  bool dynamic = false;
};

/// Immutable descriptor. The constructor checks everything that needs no tensor. Axes are checked against
/// the rank at first use. To change a field, copy `options()`, change the copy and construct a new
/// descriptor.
class QuantDescriptor {
 public:
  /// Signed 8-bit integers, per tensor, calibrated by "max".
  QuantDescriptor();
  /// Throws ArgumentError that names the field, its value and the allowed values. Rejected values:
  ///
  /// - integers outside 2 to 16 bits and unknown float formats; (2,1) without blocks; float formats other
  ///   than (2,1) and (4,3) without dynamic blocks;
  /// - axis together with block_sizes; repeated axes or axes outside -64 .. 63; block lengths that are
  ///   neither positive nor -1; a block type or block scales without lengths; dynamic blocks on several
  ///   axes;
  /// - scale_bits other than (4,3), (8,0) and 8; scale_bits of 8 with dynamic blocks; scale_block_sizes
  ///   without scale_bits;
  /// - amax that is negative, not finite, empty or of more than 16 axes; amax that is unused, with dynamic
  ///   or with dynamic blocks whose scales are not (4,3);
  /// - learn_amax with dynamic or block_sizes; scale_amax that is not positive; an unknown calib_method; a
  ///   name that is not UTF-8.
  explicit QuantDescriptor(QuantDescriptorOptions options);

  /// The fields as given; see QuantDescriptorOptions.
  [[nodiscard]] const NumBits& num_bits() const noexcept { return options_.num_bits; }
  [[nodiscard]] const std::string& name() const noexcept { return options_.name; }
  [[nodiscard]] bool fake_quant() const noexcept { return options_.fake_quant; }
  [[nodiscard]] const Axes& axis() const noexcept { return options_.axis; }
  [[nodiscard]] const BlockSizes& block_sizes() const noexcept { return options_.block_sizes; }
  [[nodiscard]] const Amax& amax() const noexcept { return options_.amax; }
  [[nodiscard]] bool learn_amax() const noexcept { return options_.learn_amax; }
  [[nodiscard]] std::optional<double> scale_amax() const noexcept { return options_.scale_amax; }
  [[nodiscard]] const std::string& calib_method() const noexcept { return options_.calib_method; }
  [[nodiscard]] bool is_unsigned() const noexcept { return options_.is_unsigned; }
  [[nodiscard]] bool narrow_range() const noexcept { return options_.narrow_range; }
  [[nodiscard]] bool dynamic() const noexcept { return options_.dynamic; }
  /// All fields, as a starting point for a changed descriptor.
  [[nodiscard]] const QuantDescriptorOptions& options() const noexcept { return options_; }

  /// Returns the axes and lengths of blocks, without type, scale_bits and scale_block_sizes.
  [[nodiscard]] static std::map<int, std::int64_t> get_block_quant_axes_and_sizes(
      const BlockSizes& block_sizes);
  /// The method names that `make_calibrator` accepts: "max", "moving_average", "percentile", "mse_search"
  /// and others.
  [[nodiscard]] static const std::vector<std::string_view>& calib_methods();

  /// Whether the blocks have limited length and their ranges are computed from each input, as in NVFP4 and
  /// MX.
  [[nodiscard]] bool has_dynamic_blocks() const;
  /// Whether a range must be given, calibrated or learned before quantization. Not needed with `dynamic`.
  /// Dynamic blocks need it only if their scales are (4,3): amax is then the range of the whole tensor, and
  /// the block scales are multiples of it.
  [[nodiscard]] bool needs_amax() const;

  /// The number format of the codes. ModelOpt accepts `unsigned` with a float format, where it has no effect.
  [[nodiscard]] Format format() const;
  /// Returns the elements that share a scale in a tensor of `rank` axes, with axes counted from the front.
  ///
  /// With block_sizes, axes without a length have blocks of 1. If every length is -1, the result is per axis
  /// With block_sizes, axes without a length have blocks of 1. If every length is -1, the result is per axis
  /// (along the other axes). Without block_sizes, a given amax decides. One element means per tensor. A list
  /// belongs to the axis in `axis`, or to the last axis if `axis` is empty. A tensor of more axes broadcasts
  /// from the right. Otherwise `axis` decides.
  ///
  /// Throws ArgumentError if the tensor has no such axis, if an axis is named twice (0 and -rank), or if
  /// dynamic blocks are not on the last axis.
  [[nodiscard]] Granularity granularity(int rank) const;

  /// Returns an object with the fields that differ from their default; `from_dict(dict())` equals this
  /// descriptor bit by bit. The keys are the field names of QuantDescriptorOptions, with "unsigned" for
  /// `is_unsigned`.
  [[nodiscard]] nlohmann::json dict() const;
  /// Throws ArgumentError that names the key and the nearest valid key, or the type that the value must
  /// have.
  [[nodiscard]] static QuantDescriptor from_dict(const nlohmann::json& dict);
  /// Returns `dict()` as one line of JSON.
  [[nodiscard]] std::string to_json() const;
  /// Reads JSON. Throws ArgumentError with the position of a syntax error, and as `from_dict`.
  [[nodiscard]] static QuantDescriptor from_json(std::string_view text);

  friend bool operator==(const QuantDescriptor& a, const QuantDescriptor& b);

 private:
  QuantDescriptorOptions options_;
};

/// Alias with the name used by ModelOpt.
using ScaledQuantDescriptor = QuantDescriptor;

/// Prints "layer.weight: (8bit fake axis=0 calib_method=max)".
std::ostream& operator<<(std::ostream& out, const QuantDescriptor& descriptor);
[[nodiscard]] std::string to_string(const QuantDescriptor& descriptor);

}  // namespace fq
