#include <numeric>

#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

Tensor scaled(const Tensor& x, double factor) {
  return factor == 1 ? x : ops::scale(Variable(x), factor).tensor();
}

/// Returns one number per column. A single number, or [1, columns], applies to all rows.
Tensor bias_row(const OpImport& op, const Tensor& bias, std::int64_t columns) {
  const bool row = bias.numel() == columns && bias.dim(-1) == columns;
  op.check(row || bias.numel() == 1, "its bias is {}: one number for each of {} columns is needed",
           bias.describe(), columns);
  if (row) return bias.reshape({columns});
  return Tensor::full({columns}, bias.item());
}

/// Multiplies x [.., in] by a weight [out, in].
ImportValue linear(const OpImport& op, const Tensor& weight, const Tensor& bias) {
  const ImportValue& x = op.value();
  op.check(x.shape.size() >= 2 && x.shape.back() == weight.dim(1),
           "its input's last axis has {} elements, its weight takes {}", x.shape.back(), weight.dim(1));
  std::vector<LayerValue> values{{"parameters", "weight", weight}};
  NodeOptions options{{"out_features", weight.dim(0)}};
  if (bias.defined())
    values.push_back({"parameters", "bias", bias});
  else
    options["bias"] = false;
  return op.layer("linear", options, {x}, values);
}

Tensor transposed(const Tensor& x) { return ops::transpose(Variable(x), {1, 0}).tensor(); }

Tensor matrix(const OpImport& op) {
  const Tensor weight = op.weight(1);
  if (weight.rank() != 2) op.unsupported("by a weight of " + std::to_string(weight.rank()) + " axes");
  return weight;
}

}  // namespace

ImportValue gemm(const OpImport& op) {
  op.check(op.integer("transA", 0, 0, 1) == 0, "it transposes its input: 'transA' is 1");
  op.check(op.value().shape.size() == 2, "its input has {} axes: rows are needed", op.value().shape.size());
  if (!op.is_constant(1)) op.unsupported("by a computed weight");
  Tensor weight = matrix(op);
  if (op.integer("transB", 0, 0, 1) == 0) weight = transposed(weight);
  // The factors alpha and beta become part of the parameters.
  weight = scaled(weight, op.number("alpha", 1));
  const double beta = op.number("beta", 1);
  const bool bias = op.has_input(2) && beta != 0;
  if (bias && !op.is_constant(2)) {
    const ImportValue product = linear(op, weight, Tensor());
    const ImportValue& c = op.value(2);
    return op.layer("add", {},
                    {product, beta == 1 ? c : op.layer("scale", {{"factor", beta}}, {c}, {}, "scale")}, {},
                    "add");
  }
  return linear(op, weight, bias ? scaled(bias_row(op, op.weight(2), weight.dim(0)), beta) : Tensor());
}

ImportValue turned(const OpImport& op, const ImportValue& x, const std::string& suffix) {
  Shape axes(x.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::swap(axes.end()[-1], axes.end()[-2]);
  return op.layer("transpose", {{"axes", axes}}, {x}, {}, suffix);
}

/// Multiplies by a constant from the left: transposes, and multiplies from the right.
ImportValue product_from_left(const OpImport& op) {
  const Tensor weight = op.weight(0);
  const ImportValue& x = op.value(1);
  op.check(x.shape.size() >= 3 && x.shape.end()[-2] == weight.dim(1), "its weight is {}, its input {}",
           weight.describe(), batch_text(x.shape));
  const ImportValue y = op.layer("linear", {{"out_features", weight.dim(0)}, {"bias", false}},
                                 {turned(op, x, "turned")}, {{"parameters", "weight", weight}}, "linear");
  return turned(op, y, {});
}

/// Expands leading axes of size 1 of `x` to the sizes of the other matrices.
ImportValue with_leading(const OpImport& op, const ImportValue& x, const Shape& other, const char* suffix) {
  if (x.shape.size() != other.size() || x.shape[0] != other[0] || x.shape.size() < 3) return x;
  Shape shape = x.shape;
  for (std::size_t i = 1; i + 2 < shape.size(); ++i)
    if (shape[i] == 1) shape[i] = other[i];
  return shape == x.shape
             ? x
             : op.layer("expand", {{"shape", Shape(shape.begin() + 1, shape.end())}}, {x}, {}, suffix);
}

ImportValue product_of_values(const OpImport& op) {
  if (op.is_constant(0) && op.constant(0).rank() == 2) return product_from_left(op);
  // With rank 8, a constant keeps all its axes and gets a first axis of 1.
  ImportValue a = op.operand(0, 8), b = op.operand(1, 8);
  op.check(a.shape.size() >= 2 && b.shape.size() >= 2, "its inputs have {} and {} axes", a.shape.size(),
           b.shape.size());
  if (const auto attention = match_attention(op, a, b)) return *attention;
  return op.layer("matmul", {},
                  {with_leading(op, a, b.shape, "left"), with_leading(op, b, a.shape, "right")});
}

/// Multiplies by a constant vector from the right: a matrix of one column, which is then removed.
ImportValue product_by_vector(const OpImport& op) {
  const Tensor vector = op.weight(1);
  const ImportValue y = linear(op, vector.reshape({1, vector.dim(0)}), Tensor());
  return op.reshaped(y, Shape(y.shape.begin(), y.shape.end() - 1), {});
}

ImportValue matmul(const OpImport& op) {
  if (op.is_constant(1) && op.constant(1).rank() == 1 && op.value().shape.size() > 2)
    return product_by_vector(op);
  if (!op.is_constant(1) || op.constant(1).rank() != 2) return product_of_values(op);
  const Tensor weight = transposed(matrix(op));
  return linear(op, weight, op.has_input(2) ? bias_row(op, op.weight(2), weight.dim(0)) : Tensor());
}

ImportValue embedding(const OpImport& op) {
  if (!op.is_constant(0)) op.unsupported("of a computed value");
  const Tensor table = op.weight(0);
  const ImportValue& ids = op.value(1);
  const auto axis = op.integer("axis", 0, -8, 8);
  if (table.rank() != 2 || (axis != 0 && axis != -2)) op.unsupported("of other than the rows of a table");
  return op.layer("embedding", {{"vocabulary", table.dim(0)}, {"width", table.dim(1)}}, {ids},
                  {{"parameters", "weight", table}});
}

}  // namespace fq::detail::onnx_ops
