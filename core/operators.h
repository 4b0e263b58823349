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
  std::string_view name;  ///< as traces have it: "conv2d"
  /// Whether it sums products of its first two inputs.
  bool is_product = false;
  /// Whether it is a product whose second input is a layer's weight, and the third its bias.
  bool has_weight = false;
  /// Whether such a weight has its input channels first: (in, out / groups, ..).
  bool transposed = false;
  /// Whether it goes through a sequence, with weights for its input and for its own state.
  bool is_recurrent = false;
  /// Whether it multiplies each channel by a weight, the second input.
  bool is_norm = false;
  /// Whether it quantizes, or gives floats of codes or sums: the same value in another form.
  bool is_conversion = false;
  /// Whether rounding before it and behind it is the same: moves, and maxima.
  bool keeps_codes = false;
  /// Whether it gives out values that it reads, and no others.
  bool moves_values = false;
  /// Whether it gives out nothing below zero.
  bool is_non_negative = false;
  /// Whether it gives out nothing below zero where it reads nothing below zero.
  bool keeps_sign = false;
  /// Whether f(s x) = s f(x) for any s > 0 of a channel, so that a factor can be moved through it.
  bool is_homogeneous = false;
  /// Whether each element of the output depends on one element of the input alone.
  bool per_element = false;

  /// The axis of its weight along which output channels lie: 0, or 1 where it is transposed.
  [[nodiscard]] constexpr int channel_axis() const noexcept { return transposed ? 1 : 0; }
};

/// The row of the operator that traces name so, or a row of facts that are all false.
[[nodiscard]] const OperatorTraits& traits(std::string_view op) noexcept;
/// All rows, in no particular order; they live as long as the program.
[[nodiscard]] std::span<const OperatorTraits> operator_table() noexcept;

}  // namespace fq
