#include <algorithm>
#include <cmath>

#include "fakequant/export/onnx/reader/element_types.h"
#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

bool is_near(double value, double wanted) { return std::abs(value - wanted) <= 1e-6; }

/// Returns the bound of a Clip: an attribute up to opset 10, later an input. `none` if it is missing.
double bound(const OpImport& op, const char* attribute, std::size_t input, double none) {
  double value = op.has_input(input) ? op.scalar(input) : op.number(attribute, none);
  op.check(!std::isnan(value), "its bound is NaN");
  return std::clamp(value, -1e30, 1e30);
}

/// Reads the axis. Before opset 13, all axes after it were merged into one.
NodeOptions axis_option(const OpImport& op) {
  const int rank = static_cast<int>(op.value().shape.size());
  const bool old = op.opset() < 13;
  const int axis = normalized_axes(op, {op.integer("axis", old ? 1 : -1, -8, 8)}, rank)[0];
  op.check(axis > 0, "it mixes samples: its axis is 0");
  const Shape& shape = op.value().shape;
  const bool alone = std::all_of(shape.begin() + axis + 1, shape.end(), [](auto size) { return size == 1; });
  op.check(!old || alone,
           "its axis is {} of {}: in versions before 13 the last one is supported, or one of size "
           "1 behind it",
           axis, rank);
  if (axis == rank - 1) return NodeOptions();
  return {{"axis", axis}};
}

}  // namespace

/// Builds a hard sigmoid of another slope from several layers.
ImportValue hard_sigmoid(const OpImport& op) {
  const double slope = op.number("alpha", 0.2), middle = op.number("beta", 0.5);
  if (is_near(slope, 1.0 / 6) && is_near(middle, 0.5)) return op.layer("hard_sigmoid");
  const auto steep = op.layer("scale", {{"factor", slope}}, {op.value()}, {}, "scale");
  const auto moved = op.layer("shift", {{"by", middle}}, {steep}, {}, "shift");
  return op.layer("clip", {{"low", 0}, {"high", 1}}, {moved});
}

/// Uses a PReLU layer for one slope or one per channel. Other slopes broadcast against the input.
ImportValue prelu(const OpImport& op) {
  const ImportValue& x = op.value();
  const Tensor slope = op.weight(1);
  const bool old = op.opset() < 7 && slope.rank() == 1;  // one slope per channel
  const bool of_channels = x.shape.size() >= 2 && slope.numel() == x.shape[1] &&
                           (old || (static_cast<std::size_t>(slope.rank()) >= x.shape.size() - 1 &&
                                    slope.dim(1 - static_cast<int>(x.shape.size())) == x.shape[1]));
  if (slope.numel() == 1) return op.layer("prelu", {}, {x}, {{"parameters", "weight", slope.reshape({1})}});
  if (of_channels)
    return op.layer("prelu", {{"per_channel", true}}, {x},
                    {{"parameters", "weight", slope.reshape({x.shape[1]})}});
  const auto above = op.layer("relu", {}, {x}, {}, "relu");
  const auto below = op.layer("clip", {{"low", -1e30}, {"high", 0}}, {x}, {}, "clip");
  const auto product = op.layer("multiply", {}, {below, op.operand(1, x.shape.size())}, {}, "multiply");
  return op.layer("add", {}, {above, product});
}

/// Uses ONNX's constants, which differ from the paper in the last digits.
ImportValue selu(const OpImport& op) {
  const double alpha = op.number("alpha", 1.67326319217681884765625),
               gamma = op.number("gamma", 1.05070102214813232421875);
  if (is_near(alpha, 1.6732632) && is_near(gamma, 1.050701)) return op.layer("selu");
  const auto y = op.layer("elu", {{"alpha", alpha}}, {op.value()}, {}, "elu");
  return op.layer("scale", {{"factor", gamma}}, {y});
}

ImportValue clip(const OpImport& op) {
  const double none = 1e30, high = bound(op, "max", 2, none),
               low = std::min(bound(op, "min", 1, -none), high);
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
  return op.layer("dropout", p == 0.5 ? NodeOptions() : NodeOptions{{"p", p}}, {op.value()});
}

}  // namespace fq::detail::onnx_ops
