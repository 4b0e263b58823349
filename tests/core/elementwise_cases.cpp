#include "core/operator_registry.h"
#include "fakequant/core/ops/operators.h"
#include "fakequant/core/ops/ops.h"

namespace fq::test {

std::vector<OperatorCase> activation_cases() {
  const Input x{image, -3, 3, {0.0}};
  return {
      {"relu6", "", {{image, -3, 9, {0.0, 6.0}}}, [](const Vars& v) { return ops::relu6(v[0]); }},
      {"clip", "", {{image, -3, 3, {-1.0, 0.5}}}, [](const Vars& v) { return ops::clip(v[0], -1.0, 0.5); }},
      {"hard_sigmoid",
       "",
       {{image, -5, 5, {-3.0, 3.0}}},
       [](const Vars& v) { return ops::hard_sigmoid(v[0]); }},
      {"hard_swish", "", {{image, -5, 5, {-3.0, 3.0}}}, [](const Vars& v) { return ops::hard_swish(v[0]); }},
      {"softplus",
       "beta",
       {{image, -3, 3, {1.5}}},
       [](const Vars& v) { return ops::softplus(v[0], 2.0, 3.0); }},
      {"prelu", "", {x, fixed({3})}, [](const Vars& v) { return ops::prelu(v[0], v[1]); }},
      {"prelu", "one", {x, fixed({1})}, [](const Vars& v) { return ops::prelu(v[0], v[1]); }},
      {"prelu", "pixels", {x, fixed({4, 5})}, [](const Vars& v) { return ops::prelu(v[0], v[1]); }},
      {"glu", "", {{{3, 6}}}, [](const Vars& v) { return ops::glu(v[0]); }},
      {"glu", "channels", {{{2, 4, 3, 2}}}, [](const Vars& v) { return ops::glu(v[0], 1); }},
  };
}

std::vector<OperatorCase> elementwise_cases() {
  const auto add = [](const Vars& v) { return ops::add(v[0], v[1]); };
  const auto multiply = [](const Vars& v) { return ops::multiply(v[0], v[1]); };
  Input channel{{3, 1, 1}};
  channel.batched = false;
  Input row{{1, 5}};
  row.batched = false;
  return {
      {"add", "", {{image}, {image}}, add},
      {"add", "channels", {{image}, channel}, add},
      {"add", "first", {row, {image}}, add},
      {"sub", "", {{image}, {image}}, [](const Vars& v) { return ops::sub(v[0], v[1]); }},
      {"sub", "channels", {{image}, channel}, [](const Vars& v) { return ops::sub(v[0], v[1]); }},
      {"multiply", "", {{image}, {image}}, multiply},
      {"multiply", "pixels", {{image}, {{2, 3, 1, 1}}}, multiply},
      {"multiply", "outer", {{{4, 1}}, row}, multiply},
  };
}

/// Comparisons have no gradient; the values that they choose have one.
std::vector<OperatorCase> comparison_cases() {
  using Compare = Variable (*)(const Variable&, const Variable&);
  const std::pair<const char*, Compare> all[] = {
      {"less", ops::less},       {"less_equal", ops::less_equal},
      {"greater", ops::greater}, {"greater_equal", ops::greater_equal},
      {"equal", ops::equal},     {"not_equal", ops::not_equal}};
  std::vector<OperatorCase> cases;
  for (const auto& [name, compare] : all) {
    const auto chosen = [compare = compare](const Vars& v) {
      return ops::multiply(compare(v[0], v[1]), ops::multiply(v[0], v[1]));
    };
    cases.push_back({name, "", {{image, 0.5, 2}, {image, 0.5, 2}}, chosen});
    cases.push_back({name, "channels", {{image, 0.5, 2}, fixed({3, 1, 1}, 0.5, 2)}, chosen});
  }
  return cases;
}

/// Functions of one value, and functions of two that divide, raise or choose.
std::vector<OperatorCase> function_cases() {
  const auto where = [](const Vars& v) {
    const Variable zero = Tensor::zeros({}, v[0].tensor().dtype(), v[0].device());
    return ops::where(ops::greater(v[0], zero), v[0], v[1]);
  };
  const auto above = [](double low, double high) { return Input{image, low, high}; };
  const Input x{image}, off{image, -2, 2, {0.0}},
      steps{image, -2, 2, {-2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2}};
  std::vector<OperatorCase> cases{
      {"div", "", {x, above(0.5, 2)}, [](const Vars& v) { return ops::div(v[0], v[1]); }},
      {"div", "first", {fixed({1, 5}), above(0.5, 2)}, [](const Vars& v) { return ops::div(v[0], v[1]); }},
      {"pow", "", {above(0.5, 2), x}, [](const Vars& v) { return ops::pow(v[0], v[1]); }},
      {"pow",
       "channels",
       {above(0.5, 2), fixed({3, 1, 1})},
       [](const Vars& v) { return ops::pow(v[0], v[1]); }},
      {"minimum", "", {x, x}, [](const Vars& v) { return ops::minimum(v[0], ops::scale(v[1], 0.7)); }},
      {"maximum", "", {x, fixed({3, 1, 1})}, [](const Vars& v) { return ops::maximum(v[0], v[1]); }},
      {"where", "", {off, x}, where},
      {"where", "channels", {off, fixed({3, 1, 1})}, where},
      {"reciprocal", "", {above(0.5, 2)}, [](const Vars& v) { return ops::reciprocal(v[0]); }},
      {"log", "", {above(0.5, 3)}, [](const Vars& v) { return ops::log(v[0]); }},
      {"sqrt", "", {above(0.5, 3)}, [](const Vars& v) { return ops::sqrt(v[0]); }},
      {"floor", "", {steps}, [](const Vars& v) { return ops::floor(v[0]); }},
      {"ceil", "", {steps}, [](const Vars& v) { return ops::ceil(v[0]); }},
      {"round", "", {steps}, [](const Vars& v) { return ops::round(v[0]); }},
      {"sign", "", {steps}, [](const Vars& v) { return ops::sign(v[0]); }},
      {"trunc", "", {steps}, [](const Vars& v) { return ops::trunc(v[0]); }},
  };
  // The f32 and the f64 number may round to two neighbours: one step is 2^-10 in f16, 2^-7 in bf16.
  for (const auto& [type, step] : {std::pair(DType::f16, 0x1p-10), std::pair(DType::bf16, 0x1p-7)})
    cases.push_back({.op = "round_to",
                     .variant = std::string(name(type)),
                     .inputs = {x},
                     .apply = [type = type](const Vars& v) { return ops::round_to(v[0], type); },
                     .tolerance = 2 * step,
                     .surrogate = [](const Vars& v) { return v[0]; }});
  for (const double exponent : {2.0, 3.0, -0.5, 0.0}) {
    OperatorCase power{"pow", "", {above(0.5, 2)}, [=](const Vars& v) { return ops::pow(v[0], exponent); }};
    power.variant = "constant" + std::to_string(cases.size());
    power.trace_name = "power";
    cases.push_back(std::move(power));
  }
  return cases;
}

std::vector<OperatorCase> plain_cases() {
  std::vector<OperatorCase> cases;
  for (const OperatorSchema& row : operator_table()) {
    if (row.run == nullptr) continue;
    std::vector<double> options;
    for (const auto& option : row.options())
      options.push_back(option.is_choice() || option.is_integer ? option.fallback : option.fallback + 0.7);
    const auto add = [&](const std::string& variant) {
      const std::vector<Input> inputs(static_cast<std::size_t>(row.inputs), Input{image, -3, 3, {0.0}});
      cases.push_back({std::string(row.name), variant, inputs,
                       [&row, options](const Vars& v) { return row.run(row, v, options); }});
    };
    add("");
    if (row.options().size() != 1 || !row.options()[0].is_choice()) continue;
    options[0] = 1;
    add(std::string(row.options()[0].choices[1]));
  }
  return cases;
}

}  // namespace fq::test
