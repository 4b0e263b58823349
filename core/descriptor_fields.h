#pragma once

/// The fields of a QuantDescriptor that are more than a number: each converts from what a user would write.
///
///     NumBits e4m3 = {4, 3};
///     Axes rows_and_columns = {0, 1};
///     Amax ranges = {0.5, 1.25};
///     BlockSizes nvfp4{.lengths = {{-1, 16}}, .type = BlockType::dynamic, .scale_bits = NumBits(4, 3)};
///
/// They are values without checks of their own: QuantDescriptor refuses what it cannot use, when it is built.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fakequant/core/tensor.h"

namespace fq {

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

}  // namespace fq
