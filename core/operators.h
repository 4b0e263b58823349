#pragma once

/// What is known of an operator by its name: the facts that placing quantizers, folding, equalising and
/// exporting ask for. There is one row for each operator, so that what reads a graph compares no names.
///
///     for (const TraceNode& node : trace(model, {1, 3, 32, 32}).nodes)
///       if (traits(node.op).has_weight) std::cout << node.path << " is a layer with a weight\n";

#include <span>
#include <string_view>

namespace fq {

/// Facts of an operator that hold whatever its inputs are; what is false is not to be relied on. All of them
/// are false for an operator that has no row, such as a user's own.
struct OperatorTraits {
  std::string_view name;       ///< as traces have it: "conv2d"
  bool is_product = false;     ///< sums products of its two first inputs
  bool has_weight = false;     ///< a product whose second input is a layer's weight, and the third its bias
  bool transposed = false;     ///< such a weight has its input channels first: (in, out / groups, ..)
  bool is_norm = false;        ///< multiplies each channel by a weight, the second input
  bool is_conversion = false;  ///< quantizes or gives floats of codes or sums: the same value in another form
  bool keeps_codes = false;    ///< rounding before and after it is the same: moves, and maxima
  bool moves_values = false;   ///< gives out values that it reads, and no others
  bool is_non_negative = false;  ///< gives out nothing below zero
  bool keeps_sign = false;       ///< gives out nothing below zero where it reads nothing below zero
  bool is_homogeneous = false;   ///< f(s x) = s f(x) for any s > 0 of a channel
  bool per_element = false;      ///< each element of the output depends on one of the input

  /// The axis of its weight along which output channels lie: 0, or 1 where it is transposed.
  [[nodiscard]] constexpr int channel_axis() const noexcept { return transposed ? 1 : 0; }
};

/// The row of the operator that traces name so, or a row of facts that are all false.
[[nodiscard]] const OperatorTraits& traits(std::string_view op) noexcept;
/// All rows, in no particular order; they live as long as the program.
[[nodiscard]] std::span<const OperatorTraits> operator_table() noexcept;

}  // namespace fq
