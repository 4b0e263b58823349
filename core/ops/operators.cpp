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

constexpr double kRequired = std::numeric_limits<double>::quiet_NaN(), kMost = 1e30;

/// Argument i of a function of `count` Variables and then options.
template <class A>
decltype(auto) argument(Inputs inputs, Options options, std::size_t i) {
  if constexpr (std::is_same_v<A, const Variable&>)
    return inputs[i];
  else
    return static_cast<A>(options[i - inputs.size()]);
}

template <auto f>
struct Call;
/// A function of Variables and numbers as a function of a row.
template <class... A, Variable (*f)(A...)>
struct Call<f> {
  static constexpr int inputs = (int{std::is_same_v<A, const Variable&>} + ...);
  static Variable run(const OperatorSchema&, Inputs x, Options options) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) { return f(argument<A>(x, options, i)...); }
    (std::index_sequence_for<A...>());
  }
};

/// Attributes of a trace: options that are numbers.
Attributes traced_options(const OperatorSchema& row, Options values) {
  return detail::traced([&] {
    Attributes out;
    for (std::size_t i = 0; i < values.size(); ++i) out.emplace_back(row.options()[i].name, values[i]);
    return out;
  });
}

/// A formula of core/numerics/detail/activations.h, whose fields are the options of the row.
template <class Formula>
Variable run_formula(const OperatorSchema& row, Inputs x, Options options) {
  constexpr std::size_t fields = std::is_empty_v<Formula> ? 0 : sizeof(Formula) / sizeof(double);
  const Formula f = [&]<std::size_t... i>(std::index_sequence<i...>) { return Formula{options[i]...}; }
  (std::make_index_sequence<fields>());
  return detail::apply_function(row.name, x[0], f, traced_options(row, options));
}

/// A row in the making.
struct Row : OperatorSchema {
  constexpr Row(std::string_view op, EngineRule rule) {
    name = op;
    engine = rule;
  }
  template <class... Fact>
  constexpr Row is(Fact... facts) const {
    Row row = *this;
    ((row.*facts = true), ...);
    return row;
  }
  constexpr Row of(int count) const {
    Row row = *this;
    row.inputs = count;
    return row;
  }
  constexpr Row option(OperatorOption given) const {
    Row row = *this;
    row.option_list[option_list[0].name.empty() ? 0 : 1] = given;
    return row;
  }
  constexpr Row to_onnx(std::string_view op, int opset = 6, std::string_view input = "X") const {
    Row row = *this;
    row.onnx = op;
    row.onnx_opset = opset;
    row.onnx_input = inputs == 1 ? input : "A";
    return row;
  }
  constexpr Row to_torch(std::string_view functions, std::string_view module = {}) const {
    Row row = *this;
    row.torch = functions;
    row.torch_module = module;
    return row;
  }
  constexpr Row to_truth() const {
    Row row = *this;
    row.gives_truth = true;
    return row;
  }
};

constexpr auto kNonNegative = &Traits::is_non_negative, kKeepsSign = &Traits::keeps_sign,
               kHomogeneous = &Traits::is_homogeneous, kPerElement = &Traits::per_element,
               kKeepsCodes = &Traits::keeps_codes, kMovesValues = &Traits::moves_values;

/// A plain function.
template <auto f>
constexpr Row function(std::string_view op, EngineRule rule) {
  Row row(op, rule);
  row.inputs = Call<f>::inputs;
  row.run = Call<f>::run;
  return row;
}
/// A function of each element.
template <auto f>
constexpr Row unary(std::string_view op, EngineRule rule) {
  return function<f>(op, rule).is(kPerElement);
}
/// A function of each element that is a formula alone.
template <class Formula>
constexpr Row formula(std::string_view op, EngineRule rule) {
  Row row = Row(op, rule).is(kPerElement);
  row.inputs = 1;
  row.run = run_formula<Formula>;
  return row;
}
template <auto f>
constexpr Row comparison(std::string_view op, std::string_view onnx = {}, int opset = 6) {
  return function<f>(op, multiplies).is(kNonNegative, kKeepsSign).to_onnx(onnx, opset).to_truth();
}
/// A product by a weight.
constexpr Row weighted(std::string_view op, EngineRule rule = product) {
  return Row(op, rule).is(&Traits::is_product, &Traits::has_weight);
}
/// A transposed convolution.
constexpr Row transposed(std::string_view op) { return weighted(op, no_kernel).is(&Traits::transposed); }
constexpr Row recurrent(std::string_view op, EngineRule rule) {
  return Row(op, rule).is(&Traits::is_recurrent);
}
constexpr Row conversion(std::string_view op) { return Row(op, none).is(&Traits::is_conversion); }
/// An operator that moves elements.
constexpr Row move(std::string_view op) {
  return Row(op, moves_codes).is(kKeepsCodes, kMovesValues, kKeepsSign);
}
constexpr Row max_pool(std::string_view op) { return move(op).is(kHomogeneous); }
constexpr Row avg_pool(std::string_view op) { return Row(op, average).is(kKeepsSign, kHomogeneous); }
constexpr Row dropout(std::string_view op) { return Row(op, none).is(kKeepsSign, kHomogeneous, kPerElement); }
constexpr Row reduction(std::string_view op) { return Row(op, own_order).is(kKeepsSign); }

constexpr OperatorOption number(std::string_view name, double fallback, double low = -kMost,
                                double high = kMost) {
  return {.name = name, .fallback = fallback, .low = low, .high = high};
}
/// A number that ONNX and torch have under other names.
constexpr OperatorOption number(std::string_view name, double fallback, double low, std::string_view onnx,
                                std::string_view torch) {
  return {.name = name, .fallback = fallback, .low = low, .high = kMost, .onnx = onnx, .torch = torch};
}
constexpr OperatorOption choice(std::string_view name, std::string_view first, std::string_view second,
                                std::string_view elsewhere = {}) {
  return {.name = name, .choices = {first, second}, .onnx = elsewhere, .torch = elsewhere};
}
constexpr OperatorOption kAxis{
    .name = "axis", .fallback = -1, .low = -8, .high = 8, .is_integer = true, .onnx = "axis", .torch = "dim"};
constexpr OperatorOption kAlpha = number("alpha", 1, -kMost, "alpha", "alpha");

Variable multiply_matrices(const Variable& a, const Variable& b) { return ops::matmul(a, b); }
Variable round_to_half(const Variable& x, bool bfloat) {
  return ops::round_to(x, bfloat ? DType::bf16 : DType::f16);
}
Variable raise_to(const Variable& a, const Variable& b) { return ops::pow(a, b); }

constexpr OperatorSchema kTable[] = {
    weighted("linear"),
    weighted("conv1d"),
    weighted("conv2d"),
    weighted("conv3d"),
    transposed("conv_transpose1d"),
    transposed("conv_transpose2d"),
    transposed("conv_transpose3d"),
    Row("add", addition).of(2).is(kKeepsSign).to_onnx("Add").to_torch("add iadd add_"),
    avg_pool("avg_pool2d"),
    avg_pool("global_avg_pool2d").to_onnx("GlobalAveragePool"),
    avg_pool("avg_pool3d"),
    avg_pool("global_avg_pool3d").to_onnx("GlobalAveragePool"),
    max_pool("max_pool2d"),
    max_pool("max_pool3d"),
    unary<ops::relu>("relu", moves_codes)
        .is(kNonNegative, kKeepsSign, kHomogeneous)
        .to_onnx("Relu")
        .to_torch("relu relu_", "ReLU"),
    Row("concat", moves_codes).is(kMovesValues, kKeepsSign).option(kAxis).to_onnx("Concat"),
    move("flatten").is(kHomogeneous),
    move("reshape"),
    move("transpose"),
    move("slice"),
    move("index_select"),
    move("expand"),
    Row("pad", moves_codes).is(kKeepsCodes, kKeepsSign, kHomogeneous),
    move("pixel_shuffle"),
    move("pixel_unshuffle"),
    move("resize_nearest"),
    Row("embedding", moves_codes),
    Row("input_part", moves_codes),
    Row("batch_norm", folded).is(&Traits::is_norm),
    unary<ops::relu6>("relu6", clips).is(kNonNegative, kKeepsSign).to_torch("relu6", "ReLU6"),
    unary<ops::clip>("clip", clips).option(number("low", kRequired)).option(number("high", kRequired)),
    unary<ops::leaky_relu>("leaky_relu", multiplies)
        .is(kHomogeneous)
        .option(number("slope", 0.01, 0, "alpha", "negative_slope"))
        .to_onnx("LeakyRelu")
        .to_torch("leaky_relu", "LeakyReLU"),
    unary<ops::hard_sigmoid>("hard_sigmoid", multiplies)
        .is(kNonNegative, kKeepsSign)
        .to_torch("hardsigmoid", "Hardsigmoid"),
    unary<ops::hard_swish>("hard_swish", multiplies)
        .to_onnx("HardSwish", 14)
        .to_torch("hardswish", "Hardswish"),
    Row("multiply", multiplies).of(2).is(kKeepsSign).to_onnx("Mul").to_torch("mul imul"),
    unary<ops::scale>("scale", multiplies).option(number("factor", 1)),
    Row("pre_quant_scale", multiplies),
    function<ops::sub>("sub", multiplies).to_onnx("Sub").to_torch("sub"),
    unary<ops::neg>("neg", multiplies).to_onnx("Neg").to_torch("neg"),
    function<ops::div>("div", multiplies).is(kKeepsSign).to_onnx("Div").to_torch("truediv"),
    unary<ops::shift>("shift", multiplies).option(number("by", 0)),
    unary<ops::abs>("abs", multiplies)
        .is(kNonNegative, kKeepsSign, kHomogeneous)
        .to_onnx("Abs")
        .to_torch("abs"),
    function<ops::minimum>("minimum", multiplies).is(kKeepsSign).to_onnx("Min"),
    function<ops::maximum>("maximum", multiplies).is(kKeepsSign).to_onnx("Max"),
    function<ops::where>("where", multiplies).is(kKeepsSign),
    comparison<ops::less>("less", "Less"),
    comparison<ops::less_equal>("less_equal", "LessOrEqual", 12),
    comparison<ops::greater>("greater", "Greater"),
    comparison<ops::greater_equal>("greater_equal", "GreaterOrEqual", 12),
    comparison<ops::equal>("equal", "Equal"),
    comparison<ops::not_equal>("not_equal"),
    Row("prelu", multiplies).is(kPerElement),
    Row("pad_constant", multiplies),
    unary<ops::floor>("floor", multiplies).to_onnx("Floor"),
    unary<ops::ceil>("ceil", multiplies).to_onnx("Ceil"),
    unary<ops::trunc>("trunc", multiplies).is(kKeepsSign),
    unary<round_to_half>("round_to", multiplies).is(kKeepsSign).option(choice("type", "f16", "bf16")),
    unary<ops::round>("round", multiplies).to_onnx("Round", 11),
    unary<ops::sign>("sign", multiplies).to_onnx("Sign", 9, "input"),
    unary<ops::reciprocal>("reciprocal", multiplies).to_onnx("Reciprocal"),
    Row("rotary", multiplies),
    unary<ops::gelu>("gelu", own_function)
        .option(choice("approximate", "none", "tanh", "approximate"))
        .to_onnx("Gelu", 20)
        .to_torch("gelu", "GELU"),
    unary<ops::silu>("silu", own_function).to_torch("silu", "SiLU"),
    unary<ops::sigmoid>("sigmoid", own_function)
        .is(kNonNegative, kKeepsSign)
        .to_onnx("Sigmoid")
        .to_torch("sigmoid", "Sigmoid"),
    unary<ops::tanh>("tanh", own_function).to_onnx("Tanh", 6, "input").to_torch("tanh", "Tanh"),
    function<ops::softmax>("softmax", own_function)
        .is(kNonNegative, kKeepsSign)
        .option(kAxis)
        .to_onnx("Softmax")
        .to_torch("", "Softmax"),
    function<ops::log_softmax>("log_softmax", own_function)
        .option(kAxis)
        .to_onnx("LogSoftmax")
        .to_torch("", "LogSoftmax"),
    Row("attention_weights", own_function).is(kNonNegative),
    unary<ops::elu>("elu", own_function).option(kAlpha).to_onnx("Elu").to_torch("elu", "ELU"),
    unary<ops::celu>("celu", own_function).option(kAlpha).to_onnx("Celu", 12).to_torch("celu", "CELU"),
    unary<ops::selu>("selu", own_function).to_onnx("Selu").to_torch("selu", "SELU"),
    unary<ops::softplus>("softplus", own_function)
        .is(kNonNegative, kKeepsSign)
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
    function<raise_to>("pow", own_function).is(kKeepsSign).to_onnx("Pow"),
    formula<detail::PowerOf>("power", own_function).option(number("exponent", 1)),
    unary<ops::exp>("exp", own_function)
        .is(kNonNegative, kKeepsSign)
        .to_onnx("Exp", 6, "input")
        .to_torch("exp"),
    unary<ops::log>("log", own_function).to_onnx("Log", 6, "input"),
    unary<ops::sqrt>("sqrt", own_function).is(kNonNegative, kKeepsSign).to_onnx("Sqrt").to_torch("sqrt"),
    unary<ops::erf>("erf", own_function).to_onnx("Erf", 9, "input"),
    unary<ops::sin>("sin", own_function).to_onnx("Sin", 7, "input"),
    unary<ops::cos>("cos", own_function).to_onnx("Cos", 7, "input"),
    recurrent("lstm", lstm),
    Row("layer_norm", own_order).is(&Traits::is_norm),
    function<multiply_matrices>("matmul", factors).is(&Traits::is_product).to_torch("matmul"),
    Row("scaled_dot_product_attention", own_order),
    recurrent("gru", own_order),
    recurrent("rnn", own_order),
    reduction("sum"),
    reduction("mean"),
    reduction("max"),
    reduction("min"),
    Row("group_norm", own_order),
    Row("instance_norm", own_order),
    Row("rms_norm", own_order),
    reduction("local_response_norm"),
    reduction("adaptive_avg_pool2d"),
    reduction("adaptive_avg_pool3d"),
    reduction("resize_linear"),
    Row("resize_cubic", own_order),
    conversion("quantize"),
    conversion("dequantize"),
    conversion("to_float"),
    conversion("to_f32"),
    dropout("dropout"),
    dropout("channel_dropout"),
    dropout("drop_path"),
    dropout("drop_block2d"),
    Row("alpha_dropout", none).is(kPerElement),
    Row("cross_entropy", none),
    Row("mse_loss", none),
};
constexpr OperatorTraits kUnknown{};

/// Rows in the order of their names.
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
