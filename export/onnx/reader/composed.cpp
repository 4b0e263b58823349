// Operators that consist of several layers.

#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

constexpr std::int64_t kMostFactors = 256;

void check_not_samples(const OpImport& op, int axis) {
  op.check(axis != batch_axis(op.value().shape), "it mixes samples: its axis {} is the batch", axis);
}

/// Returns ones where `is_one(row, column)`, else zeros.
template <class F>
Tensor binary_mask(std::int64_t rows, std::int64_t columns, const F& is_one) {
  Tensor out = Tensor::zeros({rows, columns});
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      if (is_one(i, j)) out.mutable_data<float>()[i * columns + j] = 1;
  return out;
}

/// Moves the elements along an axis by `by` positions and fills with zeros.
ImportValue shift_axis(const OpImport& op, const ImportValue& x, int axis, std::int64_t by) {
  std::vector<std::int64_t> before(x.shape.size() - static_cast<std::size_t>(axis), 0), after = before;
  before[0] = by;
  after[0] = -by;
  return op.layer("pad", {{"before", before}, {"after", after}}, {x}, {}, "moved");
}

// Returns (exp(x) + exp(-x)) / 2, or with "sub" their difference: cosh and sinh.
ImportValue half_of_exponentials(const OpImport& op, const char* how) {
  const auto up = op.layer("exp", {}, {op.value()}, {}, "exp"),
             down = op.layer("reciprocal", {}, {up}, {}, "reciprocal");
  return op.layer("scale", {{"factor", 0.5}}, {op.layer(how, {}, {up, down}, {}, "both")});
}

}  // namespace

/// Multiplies the elements of an axis one after another.
ImportValue reduce_product(const OpImport& op) {
  const auto given = op.list("axes", 1);
  const auto axes = normalized_axes(op, given, value_rank(op.value()));
  op.check(axes.size() == 1, "it goes over {} axes: one is supported", axes.size());
  const int axis = axes[0];
  check_not_samples(op, axis);
  const ImportValue& x = op.value();
  const std::int64_t size = x.shape[static_cast<std::size_t>(axis)];
  op.check(size >= 1 && size <= kMostFactors, "it multiplies {} elements: up to {} are supported", size,
           kMostFactors);
  const auto part = [&](std::int64_t i) {
    return op.layer("slice", {{"axis", axis}, {"begin", i}, {"end", i + 1}}, {x}, {}, "part");
  };
  ImportValue y = part(0);
  for (std::int64_t i = 1; i < size; ++i) y = op.layer("multiply", {}, {y, part(i)}, {}, "product");
  if (op.integer("keepdims", 1, 0, 1) == 1) return y;
  Shape shape = y.shape;
  shape.erase(shape.begin() + axis);
  return op.reshaped(y, shape, {});
}

/// Doubles the summed length in each step: adds the sums at a distance of 1, 2, 4, ..
ImportValue cumulative_sum(const OpImport& op) {
  ImportValue y = op.value();
  const int axis = normalized_axes(op, {op.whole_scalar(1)}, value_rank(y))[0];
  check_not_samples(op, axis);
  const std::int64_t size = y.shape[static_cast<std::size_t>(axis)];
  const std::int64_t way = op.integer("reverse", 0, 0, 1) == 1 ? -1 : 1;
  if (op.integer("exclusive", 0, 0, 1) == 1) y = shift_axis(op, y, axis, way);
  for (std::int64_t step = 1; step < size; step *= 2)
    y = op.layer("add", {}, {y, shift_axis(op, y, axis, way * step)}, {}, "sum");
  return y;
}

ImportValue triangle(const OpImport& op) {
  const ImportValue& x = op.value();
  const int rank = value_rank(x);
  op.check(rank >= 3, "its input has {} axes: a batch of matrices is needed", rank);
  check_not_samples(op, rank - 1);
  check_not_samples(op, rank - 2);
  const bool upper = op.integer("upper", 1, 0, 1) == 1;
  const std::int64_t shift = op.has_input(1) ? op.whole_scalar(1) : 0;
  const Tensor ones = binary_mask(x.shape[x.shape.size() - 2], x.shape.back(), [&](auto row, auto column) {
    return upper ? column - row >= shift : column - row <= shift;
  });
  Shape shape(static_cast<std::size_t>(rank) - 3, 1);
  shape.insert(shape.end(), {ones.dim(0), ones.dim(1)});
  return op.layer("multiply", {}, {x, op.parameter(ones, shape, false)});
}

/// Computes a - b * floor(a / b), or with the sign of a: a - b * trunc(a / b).
ImportValue remainder(const OpImport& op) {
  const auto rank = std::max(op.is_constant(0) ? 0 : op.input(0).shape.size(),
                             op.is_constant(1) ? 0 : op.input(1).shape.size());
  const ImportValue a = op.operand(0, rank), b = op.operand(1, rank);
  ImportValue whole = op.layer("div", {}, {a, b}, {}, "quotient");
  if (op.integer("fmod", 0, 0, 1) == 0) {
    whole = op.layer("floor", {}, {whole}, {}, "floor");
  } else {
    const auto size = op.layer("floor", {}, {op.layer("abs", {}, {whole}, {}, "abs")}, {}, "floor");
    whole = op.layer("multiply", {}, {op.layer("sign", {}, {whole}, {}, "sign"), size}, {}, "whole");
  }
  return op.layer("sub", {}, {a, op.layer("multiply", {}, {b, whole}, {}, "multiple")});
}

ImportValue tangent(const OpImport& op) {
  return op.layer(
      "div", {},
      {op.layer("sin", {}, {op.value()}, {}, "sin"), op.layer("cos", {}, {op.value()}, {}, "cos")});
}

ImportValue hyperbolic(const OpImport& op) {
  return half_of_exponentials(op, op.node().op == "Sinh" ? "sub" : "add");
}

}  // namespace fq::detail::onnx_ops
