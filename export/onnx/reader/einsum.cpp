#include <algorithm>

#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

bool has(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

/// Letters of the axes of both inputs and of the output: "bhid,bhjd->bhij".
struct Equation {
  std::string a, b, y;

  explicit Equation(const OpImport& op) {
    std::string text = op.text("equation", "");
    std::erase(text, ' ');
    const auto comma = text.find(','), arrow = text.find("->");
    const bool two = comma != std::string::npos && arrow != std::string::npos && comma < arrow &&
                     text.find('.') == std::string::npos && op.input_count() == 2;
    op.check(two, "its equation is '{}': products of two inputs, with an arrow and no dots, are supported",
             text);
    a = text.substr(0, comma);
    b = text.substr(comma + 1, arrow - comma - 1);
    y = text.substr(arrow + 2);
    for (const auto* letters : {&a, &b, &y})
      for (const char c : *letters)
        op.check(std::ranges::count(*letters, c) == 1, "its equation '{}' has a letter twice", text);
    // A letter of one input alone that the output lacks is a sum before the product.
    for (const char c : a + b)
      op.check(has(y, c) || (has(a, c) && has(b, c)), "its equation '{}' sums up one input alone", text);
  }
};

struct Axes {
  std::string letters;
  Shape sizes;
  [[nodiscard]] std::int64_t size(char c) const { return sizes[letters.find(c)]; }
  [[nodiscard]] std::int64_t product(const std::string& of) const {
    std::int64_t all = 1;
    for (const char c : of) all *= size(c);
    return all;
  }
};

std::string filtered(const std::string& letters, bool (*keep)(bool in_a, bool in_b, bool in_y),
                     const Equation& e) {
  std::string out;
  for (const char c : letters)
    if (keep(has(e.a, c), has(e.b, c), has(e.y, c))) out += c;
  return out;
}

ImportValue permute_axes(const OpImport& op, const ImportValue& x, const std::string& from,
                         const std::string& to, const std::string& suffix) {
  if (from == to) return x;
  Shape axes;
  for (const char c : to) axes.push_back(static_cast<std::int64_t>(from.find(c)));
  return op.layer("transpose", {{"axes", axes}}, {x}, {}, suffix);
}

/// Returns x as [shared.., rows, columns].
ImportValue as_matrices(const OpImport& op, const ImportValue& x, const std::string& from,
                        const std::string& shared, const std::string& rows, const std::string& columns,
                        const std::string& suffix) {
  const Axes axes{from, x.shape};
  const ImportValue ordered = permute_axes(op, x, from, shared + rows + columns, suffix + "_order");
  Shape shape;
  for (const char c : shared) shape.push_back(axes.size(c));
  shape.insert(shape.end(), {axes.product(rows), axes.product(columns)});
  return op.reshaped(ordered, shape, suffix);
}

}  // namespace

/// Computes a matrix product between transposes.
ImportValue einsum(const OpImport& op) {
  const Equation e(op);
  // With rank 8, a constant keeps all its axes and gets a first axis of 1.
  const ImportValue a = op.operand(0, 8), b = op.operand(1, 8);
  op.check(!a.fixed && !b.fixed && a.shape.size() == e.a.size() && b.shape.size() == e.b.size(),
           "its inputs do not fit its equation, or one of them is a constant");
  // Axes of a product of matrices: `shared` are in both inputs and the output, `summed` only in the inputs.
  const auto shared = filtered(
                 e.a, [](bool, bool in_b, bool in_y) { return in_b && in_y; }, e),
             summed = filtered(
                 e.a, [](bool, bool in_b, bool in_y) { return in_b && !in_y; }, e),
             rows = filtered(
                 e.a, [](bool, bool in_b, bool) { return !in_b; }, e),
             columns = filtered(
                 e.b, [](bool in_a, bool, bool) { return !in_a; }, e);
  for (const char c : shared + summed)
    op.check(Axes{e.a, a.shape}.size(c) == Axes{e.b, b.shape}.size(c), "axis '{}' has two sizes", c);
  const ImportValue product = op.layer("matmul", {},
                                       {as_matrices(op, a, e.a, shared, rows, summed, "left"),
                                        as_matrices(op, b, e.b, shared, summed, columns, "right")},
                                       {}, "matmul");
  const std::string letters = shared + rows + columns;
  Shape shape;
  for (const char c : letters)
    shape.push_back(has(e.a, c) ? Axes{e.a, a.shape}.size(c) : Axes{e.b, b.shape}.size(c));
  return permute_axes(op, op.reshaped(product, shape, "shape"), letters, e.y, "order");
}

}  // namespace fq::detail::onnx_ops
