#include <cmath>
#include <numbers>

#include "fakequant/export/onnx/reader/patterns/graph_view.h"

namespace fq::detail {
namespace {

constexpr int kDeepest = 3;  // nesting depth of products

/// Part of a GELU: the gate 1 + erf(x / sqrt 2) or 1 + tanh(..), and its x.
struct Gate {
  std::string output, x;
  bool by_tanh = false;
};

/// Returns x of x / sqrt 2.
const std::string* erf_argument(const GraphView& graph, const std::string& name) {
  const auto* quotient = graph.maker(name, "Div", 2);
  if (quotient != nullptr && graph.is_number(quotient->inputs[1], std::numbers::sqrt2))
    return &quotient->inputs[0];
  const auto* product = graph.maker(name, "Mul", 2);
  return product != nullptr ? graph.other_operand(*product, 1 / std::numbers::sqrt2) : nullptr;
}

/// Whether `name` is x^3, as a power or as products.
bool is_cube(const GraphView& graph, const std::string& name, const std::string& x) {
  const auto* power = graph.maker(name, "Pow", 2);
  if (power != nullptr) return power->inputs[0] == x && graph.is_number(power->inputs[1], 3);
  const auto* product = graph.maker(name, "Mul", 2);
  if (product == nullptr) return false;
  const auto is_square = [&](const std::string& other) {
    const auto* square = graph.maker(other, "Mul", 2);
    return square != nullptr && square->inputs[0] == x && square->inputs[1] == x;
  };
  return (product->inputs[0] == x && is_square(product->inputs[1])) ||
         (product->inputs[1] == x && is_square(product->inputs[0]));
}

/// Returns x of sqrt(2 / pi) * (x + 0.044715 x^3).
const std::string* tanh_argument(const GraphView& graph, const std::string& name) {
  const auto* product = graph.maker(name, "Mul", 2);
  const auto* sum_name =
      product != nullptr ? graph.other_operand(*product, std::sqrt(2 / std::numbers::pi)) : nullptr;
  const auto* sum = sum_name != nullptr ? graph.maker(*sum_name, "Add", 2) : nullptr;
  if (sum == nullptr) return nullptr;
  for (const int i : {0, 1}) {
    const auto* term = graph.maker(sum->inputs[static_cast<std::size_t>(1 - i)], "Mul", 2);
    const auto* cube = term != nullptr ? graph.other_operand(*term, 0.044715) : nullptr;
    const auto& x = sum->inputs[static_cast<std::size_t>(i)];
    if (cube != nullptr && is_cube(graph, *cube, x)) return &x;
  }
  return nullptr;
}

std::optional<Gate> match_gate(const GraphView& graph, const std::string& name) {
  const auto* sum = graph.maker(name, "Add", 2);
  const auto* inner = sum != nullptr ? graph.other_operand(*sum, 1) : nullptr;
  if (inner == nullptr) return std::nullopt;
  const auto *erf = graph.maker(*inner, "Erf", 1), *tanh = graph.maker(*inner, "Tanh", 1);
  const auto* x = erf != nullptr    ? erf_argument(graph, erf->inputs[0])
                  : tanh != nullptr ? tanh_argument(graph, tanh->inputs[0])
                                    : nullptr;
  if (x == nullptr) return std::nullopt;
  return Gate{name, *x, tanh != nullptr};
}

/// Finds all gates in a product of products. x may itself be a GELU.
void find_gates(const GraphView& graph, const OnnxNode& product, int depth, std::vector<Gate>& gates) {
  for (const auto& input : product.inputs) {
    if (auto gate = match_gate(graph, input)) gates.push_back(std::move(*gate));
    const auto* inner = depth > 0 ? graph.maker(input, "Mul", 2) : nullptr;
    if (inner != nullptr) find_gates(graph, *inner, depth - 1, gates);
  }
}

/// Factors of a product: the number of gates, of x, and of other factors, and the constant factor.
struct Factors {
  int gates = 0, values = 0, others = 0;
  double number = 1;
};

void count_factors(const GraphView& graph, const OnnxNode& product, const Gate& gate, int depth,
                   Factors& factors) {
  for (const auto& input : product.inputs) {
    const auto* inner = depth > 0 ? graph.maker(input, "Mul", 2) : nullptr;
    if (input == gate.output)
      ++factors.gates;
    else if (input == gate.x)
      ++factors.values;
    else if (const auto number = graph.number(input))
      factors.number *= *number;
    else if (inner != nullptr)
      count_factors(graph, *inner, gate, depth - 1, factors);
    else
      ++factors.others;
  }
}

// Whether the product is x / 2 * gate. Exporters multiply the three factors in any order, so they are
// counted.
bool is_half_of_both(const GraphView& graph, const OnnxNode& product, const Gate& gate) {
  Factors factors;
  count_factors(graph, product, gate, kDeepest, factors);
  return factors.gates == 1 && factors.values == 1 && factors.others == 0 && factors.number == 0.5;
}

}  // namespace

std::optional<OnnxNode> find_gelu(const GraphView& graph, const OnnxNode& last) {
  if (last.op != "Mul" || last.inputs.size() != 2) return std::nullopt;
  std::vector<Gate> gates;
  find_gates(graph, last, kDeepest, gates);
  for (const Gate& gate : gates) {
    if (!is_half_of_both(graph, last, gate)) continue;
    auto node = pattern_node(last, "gelu", {gate.x});
    if (gate.by_tanh) node.attributes.emplace_back("approximate", std::string("tanh"));
    return node;
  }
  return std::nullopt;
}

std::optional<OnnxNode> find_gated(const GraphView& graph, const OnnxNode& last) {
  if (last.op != "Mul" || last.inputs.size() != 2) return std::nullopt;
  for (const std::size_t i : {0, 1}) {
    const std::string &x = last.inputs[i], &gate = last.inputs[1 - i];
    const auto* sigmoid = graph.maker(gate, "Sigmoid", 1);
    if (sigmoid != nullptr && sigmoid->inputs[0] == x) return pattern_node(last, "silu", {x});
    const auto* hard = graph.maker(gate, "HardSigmoid", 1);
    if (hard == nullptr || hard->inputs[0] != x) continue;
    const auto* alpha = hard->attribute("alpha");
    const auto* slope = alpha != nullptr ? std::get_if<float>(alpha) : nullptr;
    const auto* beta = hard->attribute("beta");
    const auto* offset = beta != nullptr ? std::get_if<float>(beta) : nullptr;
    // The slope of a hard swish is 1/6. ONNX's default of 0.2 is another function.
    if (slope != nullptr && std::abs(*slope * 6 - 1) < 1e-5F &&
        (beta == nullptr || (offset != nullptr && *offset == 0.5F)))
      return pattern_node(last, "hard_swish", {x});
  }
  return std::nullopt;
}

}  // namespace fq::detail
