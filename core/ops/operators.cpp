#include "fakequant/core/ops/operators.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "fakequant/core/detail/check.h"
#include "fakequant/core/ops/detail/elementwise.h"
#include "fakequant/core/ops/ops.h"

namespace fq::operator_rows {
namespace {

using Inputs = OperatorSchema::Inputs;
using Options = OperatorSchema::Options;
using Traits = OperatorTraits;
using enum EngineRule;

// NaN as a default marks a required option, see OperatorOption::is_required.
constexpr double kRequired = std::numeric_limits<double>::quiet_NaN(), kMost = 1e30;

/// Adapts a function of Variables and numbers to the function type of a row.
template <auto f>
struct Call;
// A variant that runs f: inputs come first in its parameters, the options of the row follow as numbers.
template <class... A, Variable (*f)(A...)>
struct Call<f> {
  static constexpr int inputs = (int{std::is_same_v<A, const Variable&>} + ...);

  template <class Argument>
  static decltype(auto) argument(Inputs x, Options options, std::size_t i) {
    if constexpr (std::is_same_v<Argument, const Variable&>)
      return x[i];
    else
      return static_cast<Argument>(options[i - x.size()]);
  }
  static Variable run(const OperatorSchema&, Inputs x, Options options) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) { return f(argument<A>(x, options, i)...); }
    (std::index_sequence_for<A...>());
  }
};

/// Applies a formula of core/numerics/detail/activations.h, whose fields are the options of the row.
template <class Formula>
Variable run_formula(const OperatorSchema& row, Inputs x, Options options) {
  // A formula has only `double` fields, one per option and in the order of the options.
  constexpr std::size_t fields = std::is_empty_v<Formula> ? 0 : sizeof(Formula) / sizeof(double);
  const Formula f = [&]<std::size_t... i>(std::index_sequence<i...>) { return Formula{options[i]...}; }
  (std::make_index_sequence<fields>());
  auto attributes = detail::traced([&] {
    Attributes out;
    for (std::size_t i = 0; i < fields; ++i) out.emplace_back(row.option_list[i].name, options[i]);
    return out;
  });
  return detail::apply_function(row.name, x[0], f, std::move(attributes));
}

/// Builder of a row.
struct Row : OperatorSchema {
  template <class... Fact>
  constexpr Row(std::string_view op, EngineRule rule, Fact... facts) {
    name = op;
    engine = rule;
    ((this->*facts = true), ...);
    // An output that is never negative keeps the sign of non-negative inputs in any case.
    keeps_sign = keeps_sign || is_non_negative;
  }
  constexpr Row of(int count) {
    inputs = count;
    return *this;
  }
  constexpr Row option(OperatorOption given) {
    option_list[option_list[0].name.empty() ? 0 : 1] = given;
    return *this;
  }
  constexpr Row to_onnx(std::string_view op, int opset = 6, std::string_view input = "X") {
    onnx = op;
    onnx_opset = opset;
    onnx_input = input;
    return *this;
  }
  constexpr Row to_torch(std::string_view functions, std::string_view module = {}) {
    torch = functions;
    torch_module = module;
    return *this;
  }
};

constexpr auto kNonNegative = &Traits::is_non_negative, kKeepsSign = &Traits::keeps_sign,
               kHomogeneous = &Traits::is_homogeneous, kPerElement = &Traits::per_element,
               kKeepsCodes = &Traits::keeps_codes, kMovesValues = &Traits::moves_values,
               kProduct = &Traits::is_product, kWeight = &Traits::has_weight,
               kTransposed = &Traits::transposed, kRecurrent = &Traits::is_recurrent,
               kNorm = &Traits::is_norm, kConversion = &Traits::is_conversion;

/// Returns the row of a plain function.
template <auto f, class... Fact>
constexpr Row function(std::string_view op, EngineRule rule, Fact... facts) {
  Row row(op, rule, facts...);
  row.inputs = Call<f>::inputs;
  row.run = Call<f>::run;
  return row;
}
/// Returns the row of a plain elementwise function.
template <auto f, class... Fact>
constexpr Row unary(std::string_view op, EngineRule rule, Fact... facts) {
  return function<f>(op, rule, kPerElement, facts...);
}
/// Returns the row of a plain elementwise function given by a formula.
template <class Formula, class... Fact>
constexpr Row formula(std::string_view op, EngineRule rule, Fact... facts) {
  Row row(op, rule, kPerElement, facts...);
  row.inputs = 1;
  row.run = run_formula<Formula>;
  return row;
}
template <auto f>
constexpr Row comparison(std::string_view op) {
  Row row = function<f>(op, multiplies, kNonNegative);
  row.gives_truth = true;
  return row;
}
constexpr Row move(std::string_view op) { return {op, moves_codes, kKeepsCodes, kMovesValues, kKeepsSign}; }
constexpr Row avg_pool(std::string_view op) { return {op, average, kKeepsSign, kHomogeneous}; }
constexpr Row dropout(std::string_view op) { return {op, none, kKeepsSign, kHomogeneous, kPerElement}; }

constexpr OperatorOption number(std::string_view name, double fallback, double low = -kMost,
                                std::string_view onnx = {}, std::string_view torch = {}) {
  return {.name = name, .fallback = fallback, .low = low, .high = kMost, .onnx = onnx, .torch = torch};
}
constexpr OperatorOption choice(std::string_view name, std::string_view first, std::string_view second,
                                std::string_view elsewhere = {}) {
  return {.name = name, .choices = {first, second}, .onnx = elsewhere, .torch = elsewhere};
}
constexpr OperatorOption kAxis{
    .name = "axis", .fallback = -1, .low = -8, .high = 8, .is_integer = true, .onnx = "axis", .torch = "dim"};
constexpr OperatorOption kAlpha = number("alpha", 1, -kMost, "alpha", "alpha");

// Adapters: a row runs a function of Variables and numbers, so default arguments, choices and overloads are
// fixed here.
Variable multiply_matrices(const Variable& a, const Variable& b) { return ops::matmul(a, b); }
Variable round_to_half(const Variable& x, bool bfloat) {
  return ops::round_to(x, bfloat ? DType::bf16 : DType::f16);
}
Variable raise_power(const Variable& a, const Variable& b) { return ops::pow(a, b); }

// Order of a row: name, EngineRule, traits; then inputs, options, ONNX operator, torch functions and module.
// Rows without a function are operators whose layer types, exporters or readers are written by hand.
constexpr OperatorSchema kTable[] = {
    // Products with a weight. ONNX Runtime has no integer kernels for transposed convolutions.
    Row("linear", product, kProduct, kWeight),
    Row("conv1d", product, kProduct, kWeight),
    Row("conv2d", product, kProduct, kWeight),
    Row("conv3d", product, kProduct, kWeight),
    Row("conv_transpose1d", no_kernel, kProduct, kWeight, kTransposed),
    Row("conv_transpose2d", no_kernel, kProduct, kWeight, kTransposed),
    Row("conv_transpose3d", no_kernel, kProduct, kWeight, kTransposed),
    Row("add", addition, kKeepsSign).of(2).to_onnx("Add").to_torch("add iadd add_"),
    avg_pool("avg_pool2d"),
    avg_pool("global_avg_pool2d").to_onnx("GlobalAveragePool"),
    avg_pool("avg_pool3d"),
    avg_pool("global_avg_pool3d").to_onnx("GlobalAveragePool"),
    // Maxima and moves: equal before and after rounding, so they share the quantizer of their input.
    Row("max_pool2d", moves_codes, kKeepsCodes, kMovesValues, kKeepsSign, kHomogeneous),
    Row("max_pool3d", moves_codes, kKeepsCodes, kMovesValues, kKeepsSign, kHomogeneous),
    unary<ops::relu>("relu", moves_codes, kNonNegative, kHomogeneous)
        .to_onnx("Relu")
        .to_torch("relu relu_", "ReLU"),
    Row("concat", moves_codes, kMovesValues, kKeepsSign).option(kAxis).to_onnx("Concat"),
    Row("flatten", moves_codes, kKeepsCodes, kMovesValues, kKeepsSign, kHomogeneous),
    move("reshape"),
    move("transpose"),
    move("slice"),
    move("index_select"),
    move("expand"),
    Row("pad", moves_codes, kKeepsCodes, kKeepsSign, kHomogeneous),
    move("pixel_shuffle"),
    move("pixel_unshuffle"),
    move("resize_nearest"),
    Row("embedding", moves_codes),
    Row("input_part", moves_codes),
    Row("batch_norm", folded, kNorm),
    // Float functions from here on: the engine dequantizes, computes and quantizes again.
    unary<ops::relu6>("relu6", clips, kNonNegative).to_torch("relu6", "ReLU6"),
    unary<ops::clip>("clip", clips).option(number("low", kRequired)).option(number("high", kRequired)),
    unary<ops::leaky_relu>("leaky_relu", multiplies, kHomogeneous)
        .option(number("slope", 0.01, 0, "alpha", "negative_slope"))
        .to_onnx("LeakyRelu")
        .to_torch("leaky_relu", "LeakyReLU"),
    unary<ops::hard_sigmoid>("hard_sigmoid", multiplies, kNonNegative).to_torch("hardsigmoid", "Hardsigmoid"),
    unary<ops::hard_swish>("hard_swish", multiplies)
        .to_onnx("HardSwish", 14)
        .to_torch("hardswish", "Hardswish"),
    Row("multiply", multiplies, kKeepsSign).of(2).to_onnx("Mul").to_torch("mul imul"),
    unary<ops::scale>("scale", multiplies).option(number("factor", 1)),
    Row("pre_quant_scale", multiplies),
    function<ops::sub>("sub", multiplies).to_onnx("Sub").to_torch("sub"),
    unary<ops::neg>("neg", multiplies).to_onnx("Neg").to_torch("neg"),
    function<ops::div>("div", multiplies, kKeepsSign).to_onnx("Div").to_torch("truediv"),
    unary<ops::shift>("shift", multiplies).option(number("by", 0)),
    unary<ops::abs>("abs", multiplies, kNonNegative, kHomogeneous).to_onnx("Abs").to_torch("abs"),
    function<ops::minimum>("minimum", multiplies, kKeepsSign).to_onnx("Min"),
    function<ops::maximum>("maximum", multiplies, kKeepsSign).to_onnx("Max"),
    function<ops::where>("where", multiplies, kKeepsSign),
    comparison<ops::less>("less").to_onnx("Less"),
    comparison<ops::less_equal>("less_equal").to_onnx("LessOrEqual", 12),
    comparison<ops::greater>("greater").to_onnx("Greater"),
    comparison<ops::greater_equal>("greater_equal").to_onnx("GreaterOrEqual", 12),
    comparison<ops::equal>("equal").to_onnx("Equal"),
    comparison<ops::not_equal>("not_equal"),
    Row("prelu", multiplies, kPerElement),
    Row("pad_constant", multiplies),
    unary<ops::floor>("floor", multiplies).to_onnx("Floor"),
    unary<ops::ceil>("ceil", multiplies).to_onnx("Ceil"),
    unary<ops::trunc>("trunc", multiplies, kKeepsSign),
    unary<round_to_half>("round_to", multiplies, kKeepsSign).option(choice("type", "f16", "bf16")),
    unary<ops::round>("round", multiplies).to_onnx("Round", 11),
    unary<ops::sign>("sign", multiplies).to_onnx("Sign", 9, "input"),
    unary<ops::reciprocal>("reciprocal", multiplies).to_onnx("Reciprocal"),
    Row("rotary", multiplies),
    unary<ops::gelu>("gelu", own_function)
        .option(choice("approximate", "none", "tanh", "approximate"))
        .to_onnx("Gelu", 20)
        .to_torch("gelu", "GELU"),
    unary<ops::silu>("silu", own_function).to_torch("silu", "SiLU"),
    unary<ops::sigmoid>("sigmoid", own_function, kNonNegative)
        .to_onnx("Sigmoid")
        .to_torch("sigmoid", "Sigmoid"),
    unary<ops::tanh>("tanh", own_function).to_onnx("Tanh", 6, "input").to_torch("tanh", "Tanh"),
    function<ops::softmax>("softmax", own_function, kNonNegative)
        .option(kAxis)
        .to_onnx("Softmax")
        .to_torch("", "Softmax"),
    function<ops::log_softmax>("log_softmax", own_function)
        .option(kAxis)
        .to_onnx("LogSoftmax")
        .to_torch("", "LogSoftmax"),
    Row("attention_weights", own_function, kNonNegative),
    unary<ops::elu>("elu", own_function).option(kAlpha).to_onnx("Elu").to_torch("elu", "ELU"),
    unary<ops::celu>("celu", own_function).option(kAlpha).to_onnx("Celu", 12).to_torch("celu", "CELU"),
    unary<ops::selu>("selu", own_function).to_onnx("Selu").to_torch("selu", "SELU"),
    unary<ops::softplus>("softplus", own_function, kNonNegative)
        .option(number("beta", 1, 1e-6, {}, "beta"))
        .option(number("threshold", 20, -kMost, {}, "threshold"))
        .to_onnx("Softplus")
        .to_torch("softplus", "Softplus"),
    unary<ops::mish>("mish", own_function).to_onnx("Mish", 18).to_torch("mish", "Mish"),
    unary<ops::log_sigmoid>("log_sigmoid", own_function).to_torch("log_sigmoid", "LogSigmoid"),
    unary<ops::softsign>("softsign", own_function)
        .to_onnx("Softsign", 6, "input")
        .to_torch("softsign", "Softsign"),
    function<ops::glu>("glu", own_function).option(kAxis),
    function<raise_power>("pow", own_function, kKeepsSign).to_onnx("Pow"),
    formula<detail::PowerOf>("power", own_function).option(number("exponent", 1)),
    unary<ops::exp>("exp", own_function, kNonNegative).to_onnx("Exp", 6, "input").to_torch("exp"),
    unary<ops::log>("log", own_function).to_onnx("Log", 6, "input"),
    unary<ops::sqrt>("sqrt", own_function, kNonNegative).to_onnx("Sqrt").to_torch("sqrt"),
    unary<ops::erf>("erf", own_function).to_onnx("Erf", 9, "input"),
    unary<ops::sin>("sin", own_function).to_onnx("Sin", 7, "input"),
    unary<ops::cos>("cos", own_function).to_onnx("Cos", 7, "input"),
    Row("lstm", lstm, kRecurrent),
    Row("layer_norm", own_order, kNorm),
    function<multiply_matrices>("matmul", factors, kProduct).to_torch("matmul"),
    Row("scaled_dot_product_attention", own_order),
    Row("gru", own_order, kRecurrent),
    Row("rnn", own_order, kRecurrent),
    Row("sum", own_order, kKeepsSign),
    Row("mean", own_order, kKeepsSign),
    Row("max", own_order, kKeepsSign),
    Row("min", own_order, kKeepsSign),
    Row("group_norm", own_order),
    Row("instance_norm", own_order),
    Row("rms_norm", own_order),
    Row("local_response_norm", own_order, kKeepsSign),
    Row("adaptive_avg_pool2d", own_order, kKeepsSign),
    Row("adaptive_avg_pool3d", own_order, kKeepsSign),
    Row("resize_linear", own_order, kKeepsSign),
    Row("resize_cubic", own_order),
    // Not in exported files: conversions become Q/DQ nodes, dropout is the identity in evaluation, and losses
    // are for training.
    Row("quantize", none, kConversion),
    Row("dequantize", none, kConversion),
    Row("to_float", none, kConversion),
    Row("to_f32", none, kConversion),
    dropout("dropout"),
    dropout("channel_dropout"),
    dropout("drop_path"),
    dropout("drop_block2d"),
    Row("alpha_dropout", none, kPerElement),
    Row("cross_entropy", none),
    Row("mse_loss", none),
};
constexpr OperatorTraits kUnknown{};

/// Rows sorted by name.
constexpr auto kByName = [] {
  std::array<const OperatorSchema*, std::size(kTable)> rows{};
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = &kTable[i];
  std::ranges::sort(rows, {}, &OperatorSchema::name);
  return rows;
}();

}  // namespace
}  // namespace fq::operator_rows

namespace fq {

double OperatorOption::index(std::string_view text, std::string_view op) const {
  FQ_CHECK(text == choices[0] || text == choices[1], op, "'{}' is '{}': use '{}' or '{}'", name, text,
           choices[0], choices[1]);
  return text == choices[0] ? 0 : 1;
}

std::span<const OperatorOption> OperatorSchema::options() const noexcept {
  const auto count = std::ranges::count_if(option_list, [](const auto& o) { return !o.name.empty(); });
  return std::span(option_list).first(static_cast<std::size_t>(count));
}

const OperatorTraits& traits(std::string_view op) noexcept {
  const OperatorSchema* row = operator_schema(op);
  return row == nullptr ? operator_rows::kUnknown : *row;
}

const OperatorSchema* operator_schema(std::string_view op) noexcept {
  const auto& rows = operator_rows::kByName;
  const auto found = std::ranges::lower_bound(rows, op, {}, &OperatorSchema::name);
  return found == rows.end() || (*found)->name != op ? nullptr : *found;
}

std::span<const OperatorSchema> operator_table() noexcept { return operator_rows::kTable; }

}  // namespace fq
