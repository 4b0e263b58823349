#pragma once

/// QuantDescriptor: how a tensor is to be quantized, as a user says it. Fields, defaults and meaning are
/// those of ModelOpt's ScaledQuantDescriptor, so that its configurations can be read as they are.
///
///     const QuantDescriptor weights({.num_bits = 8, .axis = 0, .narrow_range = true});  // a scale a channel
///     const QuantDescriptor fp8({.num_bits = {4, 3}});                                  // E4M3, per tensor
///     const QuantDescriptor int4({.num_bits = 4, .block_sizes = {.lengths = {{-1, 128}}}});
///     const bool same = QuantDescriptor::from_json(weights.to_json()) == weights;       // true
///
/// A TensorQuantizer (layers/quantizer/tensor_quantizer.h) is driven by one. Rules of a config give its
/// fields by name (layers/config/quant_config.h).

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

/// The fields of a QuantDescriptor that are more than a number: each converts from what a user would write.
///
///     NumBits e4m3 = {4, 3};
///     Axes rows_and_columns = {0, 1};
///     Amax ranges = {0.5, 1.25};
///     BlockSizes nvfp4{.lengths = {{-1, 16}}, .type = BlockType::dynamic, .scale_bits = NumBits(4, 3)};
///
/// They are values without checks of their own: QuantDescriptor refuses what it cannot use, when it is built.

/// Bits of an integer format, or {exponent, mantissa} bits of a float format: `8`, `{4, 3}`. The sign bit of
/// a float is not counted among the two, as in ModelOpt.
class NumBits {
 public:
  /// An integer format: `8`.
  constexpr NumBits(int bits = 8) noexcept
      : bits_(bits) {}  // NOLINT(google-explicit-constructor): written as 8
  /// A float format: `{4, 3}` is E4M3, `{8, 0}` a power of two as scales of MX blocks are.
  constexpr NumBits(int exponent, int mantissa) noexcept : bits_(exponent), mantissa_(mantissa) {}

  /// Whether it was given as one number, which means an integer format.
  [[nodiscard]] constexpr bool is_integer() const noexcept { return !mantissa_.has_value(); }
  /// Bits of a code: those of the integer, or 1 + exponent + mantissa of a float format.
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

/// The kept axes: there is one amax for each index along them, or each combination of indices where there are
/// several. Empty means per tensor. It is written `0`, `{0, 1}` or `{}`; negative axes count from the back.
/// An int equals the list of it.
class Axes {
 public:
  /// One axis, several, or none: what is written `0`, `{0, 1}` and `{}`.
  Axes() = default;
  Axes(int axis) : values_{axis} {}                          // NOLINT(google-explicit-constructor)
  Axes(std::initializer_list<int> axes) : values_(axes) {}   // NOLINT(google-explicit-constructor)
  Axes(std::vector<int> axes) : values_(std::move(axes)) {}  // NOLINT(google-explicit-constructor)

  /// Whether no axis is kept: per tensor.
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  /// The axes as they were given: not sorted, negative ones still negative.
  [[nodiscard]] const std::vector<int>& values() const noexcept { return values_; }
  friend bool operator==(const Axes&, const Axes&) = default;

 private:
  std::vector<int> values_;
};

/// A range given beforehand: a number, a list, or a tensor that broadcasts against the input. It is copied
/// and kept as f32 on the CPU; taking one from a GPU waits for it.
class Amax {
 public:
  /// A number, a list along one axis, or a tensor; none by default. Values are rounded to f32.
  Amax() = default;
  Amax(double value);                          // NOLINT(google-explicit-constructor)
  Amax(std::initializer_list<double> values);  // NOLINT(google-explicit-constructor)
  Amax(const std::vector<float>& values);      // NOLINT(google-explicit-constructor)
  Amax(const Tensor& values);                  // NOLINT(google-explicit-constructor): copied

  /// Whether a range was given.
  [[nodiscard]] bool defined() const noexcept { return value_.defined(); }
  /// A copy of the values, of rank 0 for a number; undefined when there are none.
  [[nodiscard]] Tensor tensor() const { return defined() ? value_.clone() : Tensor{}; }
  /// The shape it was given in: rank 0 for a number, one axis for a list.
  [[nodiscard]] const Shape& shape() const noexcept { return value_.shape(); }
  /// The numbers in row-major order, valid while this lives.
  [[nodiscard]] std::span<const float> values() const;
  friend bool operator==(const Amax& a, const Amax& b);

 private:
  Tensor value_;
};

/// Whether the ranges of blocks are chosen beforehand (by calibration, or from a weight) or from each input.
enum class BlockType : unsigned char { fixed, dynamic };

/// Blocks that share a scale. A length of -1 is the whole axis. Axes without a length have blocks of 1, so
/// that `{{-1, 32}}` means 32 neighbours in each row.
struct BlockSizes {
  std::map<int, std::int64_t> lengths = {};            ///< axis -> elements
  BlockType type = BlockType::fixed;                   ///< "static" or "dynamic" in files
  std::optional<NumBits> scale_bits = {};              ///< format of the scales: {4, 3} or {8, 0}
  std::map<int, std::int64_t> scale_block_sizes = {};  ///< axis -> blocks that share a scale of scales

  [[nodiscard]] bool empty() const noexcept { return lengths.empty(); }
  friend bool operator==(const BlockSizes&, const BlockSizes&) = default;
};

/// The fields of a descriptor, each with its default, to be given by name. Which combinations make no sense
/// is said at QuantDescriptor's constructor.
struct QuantDescriptorOptions {
  /// Bits of a code: 2 to 16 for integers, or {exponent, mantissa} of a float format.
  NumBits num_bits = 8;
  /// The name by which messages know it; it changes no number.
  std::string name = {};
  /// Whether a quantizer gives values on the grid. With false it returns the codes themselves, a plain tensor
  /// without gradient, and its `scale()` tells what they are multiples of.
  bool fake_quant = true;
  /// The kept axes, each index of which has a range of its own; none is per tensor.
  Axes axis = {};
  /// Blocks that share a range, given instead of `axis`.
  BlockSizes block_sizes = {};
  /// The range, in the unit of the input: what is beyond it is clipped. Given here it overrides `axis` and is
  /// not calibrated.
  Amax amax = {};
  /// Whether amax becomes a parameter, trained with the others from the moment it is known.
  bool learn_amax = false;
  /// Multiplies amax whenever it is used, never the value that is stored; above 0.
  std::optional<double> scale_amax = {};
  /// How calibration chooses amax: one of calib_methods(), which make_calibrator (calib/calibrator.h)
  /// describes.
  std::string calib_method = "max";
  /// Whether codes are 0 and above; the key is "unsigned" in files.
  bool is_unsigned = false;
  /// Leaves out the lowest signed code, so that the grid is symmetric: -127 .. 127.
  bool narrow_range = false;
  /// Whether amax is taken from each input anew; nothing is calibrated then.
  bool dynamic = false;
};

/// An immutable value. Everything that needs no tensor is checked when it is built; axes are checked against
/// the rank at first use. To change a field, change a copy of `options()` and build another.
class QuantDescriptor {
 public:
  /// Signed integers of 8 bits, per tensor, calibrated by "max".
  QuantDescriptor();
  /// Throws ArgumentError naming the field, its value and what is allowed. It refuses:
  ///
  /// - integers of other than 2 to 16 bits and floats that are no format; (2,1) without blocks, and float
  ///   formats other than it and (4,3) without dynamic blocks;
  /// - axis together with block_sizes; axes twice or outside -64 .. 63; block lengths that are neither
  ///   positive nor -1; a type or scales of blocks without lengths; dynamic blocks on several axes;
  /// - scale_bits other than (4,3), (8,0) and 8, and 8 with dynamic blocks; scale_block_sizes without
  ///   scale_bits;
  /// - amax that is negative, not finite, empty or of more than 16 axes; amax where nothing reads it, with
  ///   dynamic and with dynamic blocks whose scales are not (4,3);
  /// - learn_amax with dynamic or block_sizes; scale_amax that is not positive; an unknown calib_method; a
  ///   name that is not UTF-8.
  explicit QuantDescriptor(QuantDescriptorOptions options);

  /// The fields, as they were given: see QuantDescriptorOptions.
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
  /// All of them, to build a changed descriptor from.
  [[nodiscard]] const QuantDescriptorOptions& options() const noexcept { return options_; }

  /// The axes and lengths of blocks, without type, scale_bits and scale_block_sizes.
  [[nodiscard]] static std::map<int, std::int64_t> get_block_quant_axes_and_sizes(
      const BlockSizes& block_sizes);
  /// The names that `make_calibrator` takes: "max", "moving_average", "percentile", "mse_search", ..
  [[nodiscard]] static const std::vector<std::string_view>& calib_methods();

  /// Whether it has blocks of limited length whose ranges are taken from each input, as NVFP4 and MX have.
  [[nodiscard]] bool has_dynamic_blocks() const;
  /// Whether a range must be given, calibrated or learned before anything is quantized. With `dynamic` none
  /// is needed, and with dynamic blocks only where scales are (4,3): then it is the range of the whole
  /// tensor, which the scales of blocks are multiples of.
  [[nodiscard]] bool needs_amax() const;

  /// The number format of the codes. ModelOpt accepts `unsigned` with a float format, where it has no effect.
  [[nodiscard]] Format format() const;
  /// Which elements of a tensor of `rank` axes share a scale, axes counted from the front.
  ///
  /// With block_sizes, axes without a length have blocks of 1; where every length is -1 that is per axis (the
  /// other ones). Without them a given amax decides: one element is per tensor; a list lies along the single
  /// `axis`, or without one along the last axis; a tensor of more axes broadcasts from the right. Else `axis`
  /// decides.
  ///
  /// Throws ArgumentError for an axis that the tensor does not have, for an axis named twice (0 and -rank),
  /// and for dynamic blocks on another axis than the last.
  [[nodiscard]] Granularity granularity(int rank) const;

  /// An object of the fields that are not at their default; `from_dict(dict())` equals this descriptor, bit
  /// by bit. The keys are the names of QuantDescriptorOptions, with "unsigned" for `is_unsigned`.
  [[nodiscard]] nlohmann::json dict() const;
  /// Throws ArgumentError naming the key and the nearest valid one, or the type that it must have.
  [[nodiscard]] static QuantDescriptor from_dict(const nlohmann::json& dict);
  /// `dict()` as one line of text.
  [[nodiscard]] std::string to_json() const;
  /// Reads such text. Throws ArgumentError with the position of a syntax error, and as `from_dict`.
  [[nodiscard]] static QuantDescriptor from_json(std::string_view text);

  friend bool operator==(const QuantDescriptor& a, const QuantDescriptor& b);

 private:
  QuantDescriptorOptions options_;
};

/// The reference's other name for it.
using ScaledQuantDescriptor = QuantDescriptor;

/// Prints "layer.weight: (8bit fake axis=0 calib_method=max)".
std::ostream& operator<<(std::ostream& out, const QuantDescriptor& descriptor);
[[nodiscard]] std::string to_string(const QuantDescriptor& descriptor);

}  // namespace fq
