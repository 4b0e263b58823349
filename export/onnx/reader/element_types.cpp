#include "fakequant/export/onnx/reader/element_types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "fakequant/export/onnx/detail/element_type.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail {
namespace {

constexpr ElementType kTruth{DType::u8, true}, kCount{DType::i64};

template <std::size_t N>
bool has_name(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool gives_truth(const OnnxNode& node, std::size_t output) {
  constexpr std::array<std::string_view, 6> operators{"And", "IsInf", "IsNaN", "Not", "Or", "Xor"};
  const OperatorSchema* row = plain_row(node.op);
  return has_name(operators, node.op) || (row != nullptr && row->gives_truth) ||
         (node.op == "Dropout" && output == 1);
}

bool gives_counts(const OnnxNode& node, std::size_t output) {
  constexpr std::array<std::string_view, 5> operators{"ArgMax", "ArgMin", "NonZero", "Shape", "Size"};
  return has_name(operators, node.op) || ((node.op == "TopK" || node.op == "MaxPool") && output == 1);
}

/// Returns the type of the value attribute of a Constant or ConstantOfShape.
ElementType type_of_attribute(const OnnxNode& node) {
  for (const auto& [key, value] : node.attributes) {
    if (const auto* tensor = std::get_if<Tensor>(&value); tensor != nullptr && tensor->defined())
      return {tensor->dtype()};
    if (std::holds_alternative<std::int64_t>(value) ||
        std::holds_alternative<std::vector<std::int64_t>>(value))
      return kCount;
  }
  return {};
}

std::optional<ElementType> stated_type(const OnnxNode& node) {
  const auto* to = node.attribute("to");
  const auto* number = to != nullptr ? std::get_if<std::int64_t>(to) : nullptr;
  const auto type = number != nullptr ? dtype_of_onnx(static_cast<int>(*number)) : std::nullopt;
  if (!type) return std::nullopt;
  return ElementType{*type, *number == onnx_bool};
}

/// Returns the input that determines the type of the node's output.
std::size_t typed_input(const OnnxNode& node) {
  if (node.op == "Where" || node.op == "CastLike" || node.op == "DequantizeLinear") return 1;
  return node.op == "OneHot" || node.op == "QuantizeLinear" ? 2 : 0;
}

}  // namespace

ElementTypes::ElementTypes(const OnnxModel& model) {
  for (const auto& input : model.inputs)
    types_[input.name] = input.kind == OnnxKind::boolean ? kTruth : ElementType{input.dtype};
  for (const auto& value : model.initializers) add(value);
  add(model.nodes);
}

void ElementTypes::add(const OnnxInitializer& value) {
  types_[value.name] = value.boolean ? kTruth : ElementType{value.value.dtype()};
}

void ElementTypes::add(const std::vector<OnnxNode>& nodes) {
  for (const auto& node : nodes) {
    for (const auto& branch : node.branches) {
      for (const auto& value : branch.initializers) add(value);
      add(branch.nodes);
      for (std::size_t i = 0; i < std::min(node.outputs.size(), branch.outputs.size()); ++i)
        // Both branches of an If have the same types. The last one is kept.
        types_[node.outputs[i]] = of(branch.outputs[i]);
    }
    for (std::size_t i = 0; i < node.outputs.size() && node.branches.empty(); ++i)
      types_[node.outputs[i]] = result(node, i);
  }
}

ElementType ElementTypes::of(const std::string& name) const {
  const auto found = types_.find(name);
  return found == types_.end() ? ElementType{} : found->second;
}

ElementType ElementTypes::result(const OnnxNode& node, std::size_t output) const {
  if (node.op == "Cast") return stated_type(node).value_or(ElementType{});
  if (node.op == "Constant" || node.op == "ConstantOfShape") return type_of_attribute(node);
  if (gives_truth(node, output)) return kTruth;
  if (gives_counts(node, output)) return kCount;
  // All other operators return the type of an input.
  const std::size_t input = typed_input(node);
  return input < node.inputs.size() ? of(node.inputs[input]) : ElementType{};
}

ElementType cast_type(const NodeReader& node) {
  const auto type = stated_type(node.node());
  if (!type || is_storage_only(type->dtype)) {
    const auto number = node.integer("to", 0, 0, 1 << 20);
    node.fail("it converts to {}: f32, f64, f16, bf16, i8, u8, i16, u16, i32, i64 and bool are supported",
              type ? std::string(name(type->dtype)) : "the element type " + std::to_string(number));
  }
  return *type;
}

std::vector<OnnxNode> with_casts(std::vector<OnnxNode> nodes, const ElementTypes& types) {
  for (auto& node : nodes) {
    // Branches are imported as nodes of the graph later.
    for (auto& branch : node.branches) branch.nodes = with_casts(std::move(branch.nodes), types);
    if (node.op != "CastLike" || !node.domain.empty() || node.inputs.size() != 2) continue;
    const ElementType to = types.of(node.inputs[1]);
    node.op = "Cast";
    node.inputs.pop_back();
    std::erase_if(node.attributes, [](const auto& entry) { return entry.first == "to"; });
    node.attributes.emplace_back("to", std::int64_t{to.boolean ? onnx_bool : onnx_type(to.dtype)});
  }
  return nodes;
}

}  // namespace fq::detail

namespace fq::detail::onnx_ops {
namespace {

bool is_unsigned(DType type) { return type == DType::u8 || type == DType::u16; }

/// Whether the type `to` contains every number of the type `from`.
bool contains(DType to, DType from) {
  if (to == from) return true;
  return bit_width(to) > bit_width(from) && (is_unsigned(from) || !is_unsigned(to));
}

/// Returns x - 2^bits * floor((x + half) / 2^bits), the number with the same lowest bits. Exact below 2^23.
ImportValue wrap_integer(const OpImport& op, const ImportValue& x, DType type) {
  const double count = std::ldexp(1.0, bit_width(type));
  ImportValue turns = op.layer("scale", {{"factor", 1 / count}}, {x}, {}, "turns");
  if (!is_unsigned(type)) turns = op.layer("shift", {{"by", 0.5}}, {turns}, {}, "turns");
  turns = op.layer("floor", {}, {turns}, {}, "turns");
  const auto whole = op.layer("scale", {{"factor", count}}, {turns}, {}, "turns");
  return op.layer("sub", {}, {x, whole}, {}, "wrapped");
}

}  // namespace

ImportValue converted(const OpImport& op, const ImportValue& x, ElementType from, ElementType to) {
  // Booleans are 0 and 1, which every type contains.
  if (from == to || (from.boolean && !to.boolean)) return x;
  if (to.boolean) return op.layer("sign", {}, {op.layer("abs", {}, {x}, {}, "abs")});
  if (to.dtype == DType::f32 || to.dtype == DType::f64) return x;
  if (is_floating(to.dtype)) {
    // The significands of f16 and bf16 have at least 8 bits, so 8-bit integers are exact.
    if (from.is_integer() && bit_width(from.dtype) == 8) return x;
    return op.layer("round_to", {{"type", std::string(name(to.dtype))}}, {x});
  }
  const ImportValue y = from.is_integer() ? x : op.layer("trunc", {}, {x});
  const bool fits = bit_width(to.dtype) > 16 || (from.is_integer() && contains(to.dtype, from.dtype));
  return fits ? y : wrap_integer(op, y, to.dtype);
}

ImportValue truncated(const OpImport& op, const ImportValue& x) {
  return op.result_type().is_integer() ? op.layer("trunc", {}, {x}, {}, "trunc") : x;
}

ImportValue wrapped(const OpImport& op, const ImportValue& x) {
  const ElementType type = op.result_type();
  return type.is_integer() && bit_width(type.dtype) <= 16 ? wrap_integer(op, x, type.dtype) : x;
}

}  // namespace fq::detail::onnx_ops
