#pragma once

/// The operator table: one row for each operator. Folding, quantizer placement, layer types of model files,
/// the ONNX writer and reader, and the reader of torch models look operators up here by name.
///
///     for (const TraceNode& node : trace(model, {1, 3, 32, 32}).nodes)
///       if (traits(node.op).has_weight) std::cout << node.path << " is a layer with a weight\n";

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

/// Facts of an operator that hold for all inputs. A fact that is false must not be relied on. All facts are
/// false for an operator without a row, for example user-defined operators.
struct OperatorTraits {
  std::string_view name;  ///< Name in traces: "conv2d".
  /// Whether it sums products of its first two inputs.
  bool is_product = false;
  /// Whether it is a product whose second input is a layer's weight, and the third its bias.
  bool has_weight = false;
  /// Whether this weight has its input channels first: (in, out / groups, ..).
  bool transposed = false;
  /// Whether it processes a sequence, with weights for its input and for its own state.
  bool is_recurrent = false;
  /// Whether it multiplies each channel by a weight, the second input.
  bool is_norm = false;
  /// Whether it quantizes, or converts codes or sums to floats: the same value in another form.
  bool is_conversion = false;
  /// Whether rounding before and after it gives the same result: moves, and maxima.
  bool keeps_codes = false;
  /// Whether its output has only values of its inputs.
  bool moves_values = false;
  /// Whether its output is never below zero.
  bool is_non_negative = false;
  /// Whether its output is never below zero if its inputs are not.
  bool keeps_sign = false;
  /// Whether f(s x) = s f(x) for any scale s > 0 of a channel. If so, a factor can be moved through it.
  bool is_homogeneous = false;
  /// Whether each element of the output depends on one element of the input alone.
  bool per_element = false;

  /// The axis of its weight along which output channels lie: 0, or 1 where it is transposed.
  [[nodiscard]] constexpr int channel_axis() const noexcept { return transposed ? 1 : 0; }
};

/// When ONNX Runtime gives the codes and bits of evaluation (docs/deploy.md, `engine_form`).
enum class EngineRule : unsigned char {
  none,          ///< The operator is not in exported files.
  moves_codes,   ///< Always.
  product,       ///< A product of codes by a weight.
  factors,       ///< A product of codes by codes.
  no_kernel,     ///< A product that the engine has for floats only.
  addition,      ///< A sum of two code tensors.
  average,       ///< An average of codes.
  folded,        ///< Folded into the layer before it.
  lstm,          ///< The engine's own integer arithmetic.
  clips,         ///< Never: the engine rounds before or after it.
  multiplies,    ///< Never: the engine multiplies floats.
  own_function,  ///< Never: the engine has its own exp, tanh or erf.
  own_order      ///< Never: the engine adds floats in its own order.
};

/// One option of an operator: a number, an integer or a choice. The value of a choice is the index of its
/// text.
struct OperatorOption {
  std::string_view name;     ///< Name in model files and traces: "slope".
  double fallback = 0;       ///< Value if the option is missing; NaN: the option is required.
  double low = 0, high = 0;  ///< Allowed range.
  bool is_integer = false;
  std::array<std::string_view, 2> choices = {};  ///< Texts that are allowed; empty for numbers.
  std::string_view onnx = {};   ///< Attribute of the ONNX operator, with the same default. Empty: none.
  std::string_view torch = {};  ///< Argument of torch's function and attribute of its module. Empty: none.

  [[nodiscard]] constexpr bool is_required() const noexcept { return fallback != fallback; }
  [[nodiscard]] constexpr bool is_choice() const noexcept { return !choices[0].empty(); }
  /// The index of a text. Throws ArgumentError if it is not one of the choices.
  [[nodiscard]] double index(std::string_view text, std::string_view op) const;
};

/// One row of the table.
struct OperatorSchema : OperatorTraits {
  using Inputs = std::span<const Variable>;
  using Options = std::span<const double>;  ///< One value for each option, in the order of the row.

  EngineRule engine = EngineRule::none;
  /// Number of inputs of a plain function: an operator of these inputs and options alone. 0: another
  /// operator.
  int inputs = 0;
  /// Computes a plain function. Null for other operators.
  Variable (*run)(const OperatorSchema& row, Inputs inputs, Options options) = nullptr;
  std::array<OperatorOption, 2> option_list = {};
  std::string_view onnx;          ///< ONNX operator of the same inputs and options. Empty: none.
  std::string_view onnx_input;    ///< Name of its first input.
  int onnx_opset = 0;             ///< First supported operator set that has it.
  bool gives_truth = false;       ///< Whether the ONNX operator returns booleans instead of 1 and 0.
  std::string_view torch;         ///< Names of torch's functions and methods, separated by spaces.
  std::string_view torch_module;  ///< Class of torch.nn. Empty: none.

  /// The options of a plain function.
  [[nodiscard]] std::span<const OperatorOption> options() const noexcept;
};

/// Facts of the operator. All are false if it has no row.
[[nodiscard]] const OperatorTraits& traits(std::string_view op) noexcept;
/// The row of an operator. Null if it has none.
[[nodiscard]] const OperatorSchema* operator_schema(std::string_view op) noexcept;
/// All rows. They live as long as the program.
[[nodiscard]] std::span<const OperatorSchema> operator_table() noexcept;

}  // namespace fq
