#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fakequant/export/onnx/reader/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

using nlohmann::ordered_json;

bool is_near(double value, double wanted) { return std::abs(value - wanted) <= 1e-6; }

/// The bound of a Clip: an attribute up to version 10, then an input; `none` where there is none.
double bound(const OpImport& op, const char* attribute, std::size_t input, double none) {
  double value = op.has_input(input) ? op.scalar(input) : op.number(attribute, none);
  op.check(!std::isnan(value), "its bound is NaN");
  return std::clamp(value, -1e30, 1e30);
}

/// Along which axis; before version 13 all axes behind it counted as one.
ordered_json axis_option(const OpImport& op) {
  const int rank = static_cast<int>(op.value().shape.size());
  const bool old = op.opset() < 13;
  const int axis = axes_of(op, {op.integer("axis", old ? 1 : -1, -8, 8)}, rank)[0];
  op.check(axis > 0, "it mixes samples: its axis is 0");
  op.check(!old || axis == rank - 1, "its axis is {} of {}: the last one is supported in versions before 13",
           axis, rank);
  if (axis == rank - 1) return ordered_json::object();
  return {{"axis", axis}};
}

ImportValue both(const OpImport& op, const char* type) {
  op.check(op.input_count() == 2, "it has {} inputs", op.input_count());
  for (const std::size_t i : {0, 1})
    if (op.is_constant(i)) op.unsupported("of a constant");
  const ImportValue &a = op.value(0), &b = op.value(1);
  op.check(a.shape.size() == b.shape.size(), "its inputs have {} and {} axes: as many are needed",
           a.shape.size(), b.shape.size());
  return op.layer(type, {}, {a, b});
}

}  // namespace

ImportValue relu(const OpImport& op) { return op.layer("relu"); }
ImportValue sigmoid(const OpImport& op) { return op.layer("sigmoid"); }
ImportValue tanh(const OpImport& op) { return op.layer("tanh"); }

ImportValue silu(const OpImport& op) {
  op.recognise("silu");
  return op.layer("silu");
}

ImportValue gelu(const OpImport& op) {
  if (op.node().domain == kPatternDomain) op.recognise("gelu");
  const auto kind = op.text("approximate", "none");
  op.check(kind == "none" || kind == "tanh", "its attribute 'approximate' is '{}'", kind);
  if (kind == "none") return op.layer("gelu");
  return op.layer("gelu", {{"approximate", "tanh"}}, {op.value()});
}

ImportValue hard_sigmoid(const OpImport& op) {
  op.check(is_near(op.number("alpha", 0.2), 1.0 / 6) && is_near(op.number("beta", 0.5), 0.5),
           "its slope is {}, its value at 0 {}: 1/6 and 0.5 are supported", op.number("alpha", 0.2),
           op.number("beta", 0.5));
  return op.layer("hard_sigmoid");
}

ImportValue hard_swish(const OpImport& op) {
  if (op.node().domain == kPatternDomain) op.recognise("hard swish");
  return op.layer("hard_swish");
}

ImportValue leaky_relu(const OpImport& op) {
  const double slope = op.number("alpha", 0.01);
  return op.layer("leaky_relu", slope == 0.01 ? ordered_json::object() : ordered_json{{"slope", slope}},
                  {op.value()});
}

ImportValue prelu(const OpImport& op) {
  if (op.weight(1).numel() != 1) op.unsupported("of a slope for each channel");
  op.recognise("leaky relu");
  return op.layer("leaky_relu", {{"slope", op.scalar(1)}}, {op.value()});
}

ImportValue clip(const OpImport& op) {
  const double none = 1e30, low = bound(op, "min", 1, -none), high = bound(op, "max", 2, none);
  if (low == -none && high == none) return op.value();
  if (low == 0 && high == none) return op.layer("relu");
  if (low == 0 && high == 6) return op.layer("relu6");
  return op.layer("clip", {{"low", low}, {"high", high}}, {op.value()});
}

ImportValue softmax(const OpImport& op) { return op.layer("softmax", axis_option(op), {op.value()}); }
ImportValue log_softmax(const OpImport& op) { return op.layer("log_softmax", axis_option(op), {op.value()}); }

ImportValue dropout(const OpImport& op) {
  const double p = op.has_input(1) ? op.scalar(1) : op.number("ratio", 0.5);
  op.check(p >= 0 && p <= 0.999, "its ratio is {}: from 0 to 0.999 are supported", p);
  if (p == 0) return op.value();
  return op.layer("dropout", p == 0.5 ? ordered_json::object() : ordered_json{{"p", p}}, {op.value()});
}

ImportValue add(const OpImport& op) { return both(op, "add"); }
ImportValue multiply(const OpImport& op) { return both(op, "multiply"); }

}  // namespace fq::detail::onnx_ops
