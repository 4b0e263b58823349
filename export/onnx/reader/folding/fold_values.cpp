#include <algorithm>
#include <cmath>
#include <limits>

#include "fakequant/export/onnx/reader/folding/fold.h"

namespace fq::detail {
namespace {

/// Returns the strides of a row-major tensor.
std::vector<std::int64_t> row_major_steps(const Shape& shape) {
  std::vector<std::int64_t> steps(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
  return steps;
}

/// Calls `visit` with the offsets in two tensors with these strides, for each index of `shape`.
template <class F>
void visit_indices(const Shape& shape, const std::vector<std::int64_t>& first,
                   const std::vector<std::int64_t>& second, const F& visit) {
  std::vector<std::int64_t> index(shape.size(), 0);
  std::int64_t a = 0, b = 0;
  for (std::int64_t left = numel(shape); left > 0; --left) {
    visit(a, b);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      a += first[axis];
      b += second[axis];
      // Counts like an odometer: an axis that overflows returns to 0 and carries to the axis before it.
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
      a -= first[axis] * shape[axis];
      b -= second[axis] * shape[axis];
    }
  }
}

/// A reduction: initial value, step for each element, and final step.
struct Reduction {
  double begin;
  double (*take)(double so_far, double x);
  double (*end)(double total, double count);
};

double sum(double a, double x) { return a + x; }
double same(double a, double) { return a; }

const Reduction* find_reduction(const std::string& op) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  static const std::pair<const char*, Reduction> table[] = {
      {"ReduceSum", {0, sum, same}},
      {"ReduceMean", {0, sum, [](double a, double count) { return a / count; }}},
      // `x != x`: a NaN is the result.
      {"ReduceMax", {-infinity, [](double a, double x) { return x > a || x != x ? x : a; }, same}},
      {"ReduceMin", {infinity, [](double a, double x) { return x < a || x != x ? x : a; }, same}},
      {"ReduceProd", {1, [](double a, double x) { return a * x; }, same}},
      {"ReduceL1", {0, [](double a, double x) { return a + std::abs(x); }, same}},
      {"ReduceL2",
       {0, [](double a, double x) { return a + x * x; }, [](double a, double) { return std::sqrt(a); }}},
      {"ReduceSumSquare", {0, [](double a, double x) { return a + x * x; }, same}},
      {"ReduceLogSum", {0, sum, [](double a, double) { return std::log(a); }}},
      {"ReduceLogSumExp",
       {0, [](double a, double x) { return a + std::exp(x); },
        [](double a, double) { return std::log(a); }}}};
  const auto* found =
      std::ranges::find(table, op, [](const auto& entry) { return std::string(entry.first); });
  return found == std::end(table) ? nullptr : &found->second;
}

std::vector<int> reduced_axes(const Fold& f, int rank) {
  const auto given = f.list("axes", 1);
  auto axes = normalized_axes(f.node, given, rank);
  if (given.empty() && f.node.integer("noop_with_empty_axes", 0, 0, 1) == 0)
    for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
  return axes;
}

/// Returns the broadcast sizes of the leading axes of a product.
Shape leading(const Tensor& a, const Tensor& b) {
  return broadcast_shapes(Shape(a.shape().begin(), a.shape().end() - 2),
                          Shape(b.shape().begin(), b.shape().end() - 2), "import_onnx");
}

/// Returns the strides of `x` along the leading axes of a broadcast shape.
std::vector<std::int64_t> broadcast_steps(const Tensor& x, const Shape& lead) {
  const auto own = row_major_steps(x.shape());
  std::vector<std::int64_t> steps(lead.size(), 0);
  const std::size_t missing = lead.size() + 2 - x.shape().size();
  for (std::size_t i = missing; i < lead.size(); ++i)
    if (x.shape()[i - missing] != 1) steps[i] = own[i - missing];
  return steps;
}

int input_axis(const Fold& f, std::int64_t given) {
  return normalized_axes(f.node, {given}, f.input(0).rank())[0];
}

/// Returns a mirrored index. `reflect` does not repeat the edge.
std::int64_t mirrored(std::int64_t at, std::int64_t size) {
  // 0, 1, .., size - 1, size - 2, .., 1 repeats with the period 2 (size - 1).
  const std::int64_t period = std::max<std::int64_t>(2 * (size - 1), 1),
                     place = ((at % period) + period) % period;
  return place < size ? place : period - place;
}

/// Numbers of elements added to both ends of each axis.
struct Pads {
  Shape before, after;
};

Pads read_pads(const Fold& f) {
  const int rank = f.input(0).rank();
  const auto given = f.list("pads", 1);
  std::vector<int> axes;
  if (f.has(3)) axes = normalized_axes(f.node, integer_list(f.node, f.input(3)), rank);
  for (int axis = 0; axis < rank && !f.has(3); ++axis) axes.push_back(axis);
  f.node.check(given.size() == 2 * axes.size(), "it has {} pads of {} axes", given.size(), axes.size());
  for (const auto size : given)
    f.node.check(size >= -kLargestSize && size <= kLargestSize, "it pads by {}", size);
  Pads out{Shape(static_cast<std::size_t>(rank), 0), Shape(static_cast<std::size_t>(rank), 0)};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    out.before[static_cast<std::size_t>(axes[i])] = given[i];
    out.after[static_cast<std::size_t>(axes[i])] = given[i + axes.size()];
  }
  return out;
}

/// Returns `x` with more elements along an axis. Each is the element at index `from`, or `value` outside.
template <class F>
Tensor padded(const Tensor& x, int axis, std::int64_t size, double value, const F& from) {
  Shape shape = x.shape();
  shape[static_cast<std::size_t>(axis)] = size;
  Tensor out = Tensor::full(shape, value, DType::f64);
  const AxisView view = axis_view(x.shape(), axis);
  for (std::int64_t o = 0; o < view.outer; ++o)
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t at = from(i);
      if (at < 0 || at >= view.size) continue;
      std::copy_n(x.data<double>() + (o * view.size + at) * view.inner, view.inner,
                  out.mutable_data<double>() + (o * size + i) * view.inner);
    }
  return out;
}

}  // namespace

Tensor fold_reduce(const Fold& f) {
  const Tensor x = f.input(0).to(DType::f64);
  const Reduction& reduction = *find_reduction(f.node.node().op);
  const auto axes = reduced_axes(f, x.rank());
  Shape kept = x.shape();
  for (const int axis : axes) kept[static_cast<std::size_t>(axis)] = 1;
  f.budget.take(f.node, x.numel());
  f.budget.take(f.node, kept);
  Tensor out = Tensor::full(kept, reduction.begin, DType::f64);
  // A step of 0 along a reduced axis lets all its elements meet in one sum.
  auto steps = row_major_steps(kept);
  for (const int axis : axes) steps[static_cast<std::size_t>(axis)] = 0;
  double* to = out.mutable_data<double>();
  visit_indices(x.shape(), row_major_steps(x.shape()), steps, [&](std::int64_t from, std::int64_t at) {
    to[at] = reduction.take(to[at], x.data<double>()[from]);
  });
  const double count =
      out.numel() == 0 ? 1.0 : static_cast<double>(x.numel()) / static_cast<double>(out.numel());
  for (std::int64_t i = 0; i < out.numel(); ++i) to[i] = reduction.end(to[i], count);
  Shape shape;
  const bool keep = f.node.integer("keepdims", 1, 0, 1) == 1;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (keep || std::ranges::find(axes, axis) == axes.end())
      shape.push_back(kept[static_cast<std::size_t>(axis)]);
  return convert_type(out.reshape(shape), f.input(0).dtype());
}

Tensor fold_matmul(const Fold& f) {
  Tensor a = f.input(0).to(DType::f64), b = f.input(1).to(DType::f64);
  f.node.check(a.rank() >= 1 && b.rank() >= 1, "its inputs are {} and {}", a.describe(), b.describe());
  const bool row = a.rank() == 1, column = b.rank() == 1;
  if (row) a = a.reshape({1, a.dim(0)});
  if (column) b = b.reshape({b.dim(0), 1});
  f.node.check(a.dim(-1) == b.dim(-2), "its inputs are {} and {}", a.describe(), b.describe());
  const Shape lead = leading(a, b);
  const std::int64_t rows = a.dim(-2), columns = b.dim(-1), inner = a.dim(-1);
  Shape shape = lead;
  shape.insert(shape.end(), {rows, columns});
  f.budget.take(f.node, shape);
  // Counts work too: a product of long rows takes time without creating elements.
  f.budget.take(f.node, numel(shape) * (inner / 64));
  Tensor out = Tensor::zeros(shape, DType::f64);
  double* to = out.mutable_data<double>();
  visit_indices(out.numel() == 0 ? Shape{0} : lead, broadcast_steps(a, lead), broadcast_steps(b, lead),
                [&](std::int64_t left, std::int64_t right) {
                  for (std::int64_t i = 0; i < rows; ++i, to += columns)
                    for (std::int64_t k = 0; k < inner; ++k)
                      for (std::int64_t j = 0; j < columns; ++j)
                        to[j] += a.data<double>()[left + i * inner + k] *
                                 b.data<double>()[right + k * columns + j];
                });
  if (row) shape.erase(shape.end() - 2);
  if (column) shape.pop_back();
  return convert_type(out.reshape(shape), f.input(0).dtype());
}

Tensor fold_softmax(const Fold& f) {
  Tensor out = f.input(0).to(DType::f64).clone();
  const AxisView view = axis_view(out.shape(), input_axis(f, f.node.integer("axis", -1, -8, 8)));
  const bool logarithm = f.node.node().op == "LogSoftmax";
  f.budget.take(f.node, out.numel());
  if (out.numel() == 0) return out.to(f.input(0).dtype());
  for (std::int64_t o = 0; o < view.outer * view.inner; ++o) {
    double* x = out.mutable_data<double>() + o / view.inner * view.size * view.inner + o % view.inner;
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    // Subtracts the largest value, so that exp does not overflow.
    for (std::int64_t i = 0; i < view.size; ++i) largest = std::max(largest, x[i * view.inner]);
    for (std::int64_t i = 0; i < view.size; ++i) total += std::exp(x[i * view.inner] - largest);
    for (std::int64_t i = 0; i < view.size; ++i) {
      double& v = x[i * view.inner];
      v = logarithm ? v - largest - std::log(total) : std::exp(v - largest) / total;
    }
  }
  return out.to(f.input(0).dtype());
}

Tensor fold_cumsum(const Fold& f) {
  const Tensor x = f.input(0).to(DType::f64);
  const AxisView view = axis_view(x.shape(), input_axis(f, static_cast<std::int64_t>(f.input(1).item())));
  const bool back = f.node.integer("reverse", 0, 0, 1) == 1,
             exclusive = f.node.integer("exclusive", 0, 0, 1) == 1;
  f.budget.take(f.node, x.numel());
  if (x.numel() == 0) return f.input(0);
  Tensor out = Tensor::empty(x.shape(), DType::f64);
  for (std::int64_t o = 0; o < view.outer * view.inner; ++o) {
    const std::int64_t begin = o / view.inner * view.size * view.inner + o % view.inner;
    double total = 0;
    for (std::int64_t i = 0; i < view.size; ++i) {
      const std::int64_t at = begin + (back ? view.size - 1 - i : i) * view.inner;
      const double v = x.data<double>()[at];
      out.mutable_data<double>()[at] = exclusive ? total : total + v;
      total += v;
    }
  }
  return convert_type(out, f.input(0).dtype());
}

Tensor fold_pad(const Fold& f) {
  Tensor x = f.input(0).to(DType::f64);
  const auto mode = f.node.text("mode", "constant");
  f.node.check(mode == "constant" || mode == "edge" || mode == "reflect" || mode == "wrap",
               "its mode is '{}'", mode);
  const double value = f.has(2) ? f.input(2).item() : f.node.number("value", 0);
  const Pads pads = read_pads(f);
  for (int axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t size = x.dim(axis), before = pads.before[static_cast<std::size_t>(axis)],
                       whole = size + before + pads.after[static_cast<std::size_t>(axis)];
    f.node.check(whole >= 0 && whole <= kLargestSize && (size > 0 || mode == "constant"),
                 "its pads make {} elements of an axis of {}", whole, size);
    Shape shape = x.shape();
    shape[static_cast<std::size_t>(axis)] = whole;
    f.budget.take(f.node, shape);
    x = padded(x, axis, whole, value, [&](std::int64_t i) {
      const std::int64_t at = i - before;
      if (mode == "edge") return std::clamp<std::int64_t>(at, 0, size - 1);
      if (mode == "reflect") return mirrored(at, size);
      return mode == "wrap" ? (at % size + size) % size : at;
    });
  }
  return convert_type(x, f.input(0).dtype());
}

}  // namespace fq::detail
