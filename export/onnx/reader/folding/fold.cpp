#include "fakequant/export/onnx/reader/folding/fold.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "fakequant/core/ops/elementwise.h"
#include "fakequant/export/onnx/reader/element_types.h"
#include "fakequant/export/onnx/reader/operators.h"
#include "fakequant/layers/model/detail/symbolic_batch.h"

namespace fq::detail {
namespace {

template <class T>
Tensor lowest_bits(const Tensor& wide, DType type) {
  Tensor out = Tensor::empty(wide.shape(), type);
  std::transform(wide.data<std::int64_t>(), wide.data<std::int64_t>() + wide.numel(), out.mutable_data<T>(),
                 [](std::int64_t v) { return static_cast<T>(v); });
  return out;
}

/// Converts i64 to another integer type. Numbers outside the type wrap.
Tensor wrapped(const Tensor& wide, DType type) {
  switch (type) {
    case DType::i8:
      return lowest_bits<std::int8_t>(wide, type);
    case DType::u8:
      return lowest_bits<std::uint8_t>(wide, type);
    case DType::i16:
      return lowest_bits<std::int16_t>(wide, type);
    case DType::u16:
      return lowest_bits<std::uint16_t>(wide, type);
    case DType::i32:
      return lowest_bits<std::int32_t>(wide, type);
    default:
      return wide;
  }
}

}  // namespace

// Through i64: a conversion of a double outside of a narrow type is undefined, of an i64 it wraps.
Tensor convert_type(const Tensor& computed, DType type) {
  if (is_floating(type)) return computed.to(type);
  Tensor whole = Tensor::empty(computed.shape(), DType::f64);
  std::transform(computed.data<double>(), computed.data<double>() + computed.numel(),
                 whole.mutable_data<double>(), [](double v) { return std::trunc(v); });
  return wrapped(whole.to(DType::i64), type);
}

namespace {

// Adds zeros, whose shape broadcasts `x`.
Tensor expanded(const Fold& f, const Tensor& x, const Shape& shape) {
  const Shape out = broadcast_shapes(x.shape(), shape, "import_onnx");
  f.budget.take(f.node, out);
  const Tensor values = computable(x);
  return ops::add(Variable(values), Variable(Tensor::zeros(out, values.dtype()))).tensor().to(x.dtype());
}

/// Combines the inputs from the left. Computes in doubles, which hold all integers up to 2^53.
template <class F>
Tensor combine(const Fold& f, F compute, std::optional<DType> type = {}) {
  Tensor out = f.input(0).to(DType::f64);
  for (std::size_t i = 1; i < f.inputs.size(); ++i) {
    const Tensor next = f.input(i).to(DType::f64);
    const Shape shape = broadcast_shapes(out.shape(), next.shape(), "import_onnx");
    const Tensor x = expanded(f, out, shape), y = expanded(f, next, shape);
    out = Tensor::empty(shape, DType::f64);
    std::transform(x.data<double>(), x.data<double>() + x.numel(), y.data<double>(),
                   out.mutable_data<double>(), compute);
  }
  return convert_type(out, type.value_or(f.input(0).dtype()));
}

/// Computes a function of two inputs.
template <class F>
Tensor binary(const Fold& f, F compute, std::optional<DType> type = {}) {
  (void)f.input(1);  // throws if there is none
  return combine(f, compute, type);
}

template <class F>
Tensor unary(const Fold& f, F compute) {
  const Tensor x = f.input(0).to(DType::f64);
  f.budget.take(f.node, x.numel());
  Tensor out = Tensor::empty(x.shape(), DType::f64);
  std::transform(x.data<double>(), x.data<double>() + x.numel(), out.mutable_data<double>(), compute);
  return convert_type(out, f.input(0).dtype());
}

Tensor cast(const Fold& f) {
  const auto [type, boolean] = cast_type(f.node);
  const Tensor& x = f.input(0);
  f.budget.take(f.node, x.numel());
  if (boolean) return unary(f, [](double v) { return v != 0 ? 1.0 : 0.0; }).to(DType::u8);
  if (is_floating(type)) return x.to(type);
  return is_floating(x.dtype()) ? convert_type(x.to(DType::f64), type) : wrapped(x.to(DType::i64), type);
}

Tensor constant_attribute(const NodeReader& node) {
  // A Constant has one of several attributes, each for another type.
  node.check(node.node().attributes.size() == 1, "it has {} attributes: one value is needed",
             node.node().attributes.size());
  for (const auto& [key, value] : node.node().attributes) {
    if (const auto* tensor = std::get_if<Tensor>(&value); tensor != nullptr && tensor->defined())
      return *tensor;
    if (const auto* number = std::get_if<float>(&value)) return Tensor::from({*number}, {});
    if (const auto* number = std::get_if<std::int64_t>(&value)) return Tensor::from({*number}, {});
    if (const auto* list = std::get_if<std::vector<float>>(&value))
      return Tensor::from(*list, {static_cast<std::int64_t>(list->size())});
    if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value))
      return Tensor::from(*list, {static_cast<std::int64_t>(list->size())});
  }
  node.fail("it has no numbers");
}

Tensor constant_of_shape(const Fold& f) {
  const Shape shape = integer_list(f.node, f.input(0));
  const auto* value = f.node.node().attribute("value");
  const auto* tensor = value != nullptr ? std::get_if<Tensor>(value) : nullptr;
  f.budget.take(f.node, numel(shape));
  f.node.check(tensor == nullptr || tensor->numel() == 1, "its value is {}: one number is needed",
               tensor == nullptr ? "" : tensor->describe());
  // ONNX's default is a 0 of f32.
  return tensor == nullptr ? Tensor::zeros(shape) : Tensor::full(shape, tensor->item(), tensor->dtype());
}

Tensor where(const Fold& f) {
  const Tensor yes = f.input(1), no = f.input(2);
  const Shape shape = broadcast_shapes(broadcast_shapes(f.input(0).shape(), yes.shape(), "import_onnx"),
                                       no.shape(), "import_onnx");
  const Tensor c = expanded(f, f.input(0).to(DType::f64), shape), a = expanded(f, yes.to(DType::f64), shape),
               b = expanded(f, no.to(DType::f64), shape);
  Tensor out = Tensor::empty(shape, DType::f64);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.mutable_data<double>()[i] = c.data<double>()[i] != 0 ? a.data<double>()[i] : b.data<double>()[i];
  return out.to(yes.dtype());
}

/// Computes the remainder with the sign of the divisor or, if the node says so, of the dividend.
Tensor modulo(const Fold& f) {
  const bool c = f.node.integer("fmod", 0, 0, 1) == 1;
  return binary(f, [c](double a, double b) { return c ? std::fmod(a, b) : a - b * std::floor(a / b); });
}

Tensor range(const Fold& f) {
  const double start = f.input(0).item(), limit = f.input(1).item(), step = f.input(2).item();
  const double count = std::max(0.0, std::ceil((limit - start) / step));
  // A step of 0 gives an infinite count.
  f.node.check(count < 1e9, "it counts from {} to {} by {}", start, limit, step);
  f.budget.take(f.node, static_cast<std::int64_t>(count));
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = start + static_cast<double>(i) * step;
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())}).to(f.input(0).dtype());
}

/// Returns a triangle of a matrix: on and above the k-th diagonal, or on and below it.
Tensor trilu(const Fold& f) {
  const Tensor x = f.input(0).to(DType::f64);
  f.node.check(x.rank() >= 2, "its input is {}", x.describe());
  f.budget.take(f.node, x.numel());
  const bool upper = f.node.integer("upper", 1, 0, 1) == 1;
  const std::int64_t k = f.has(1) ? static_cast<std::int64_t>(f.input(1).item()) : 0, rows = x.dim(-2),
                     columns = x.dim(-1);
  Tensor out = x.clone();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    // x: [.., rows, columns]. The diagonal of an element is its column minus its row.
    const std::int64_t diagonal = i % columns - i / columns % rows;
    if (upper ? diagonal < k : diagonal > k) out.mutable_data<double>()[i] = 0;
  }
  return out.to(f.input(0).dtype());
}

Tensor clip(const Fold& f) {
  constexpr double none = std::numeric_limits<double>::infinity();
  // The bounds are attributes up to opset 10.
  const double low = f.has(1) ? f.input(1).item() : f.node.number("min", -none),
               high = f.has(2) ? f.input(2).item() : f.node.number("max", none);
  return unary(f, [low, high](double v) { return std::min(std::max(v, low), high); });
}

using Operator = std::function<Tensor(const Fold&)>;

// Operators that exporters apply to shapes, positions, masks and weights.
const std::map<std::string, Operator, std::less<>>& operators() {
  static const std::map<std::string, Operator, std::less<>> table = {
      {"Constant", [](const Fold& f) { return constant_attribute(f.node); }},
      {"ConstantOfShape", constant_of_shape},
      {"Identity", [](const Fold& f) { return f.input(0); }},
      {"Shape", [](const Fold& f) { return shape_tensor(f.node, f.input(0).shape()); }},
      {"Gather", fold_gather},
      {"Slice", fold_slice},
      {"ScatterND", fold_scatter_nd},
      {"Tile", fold_tile},
      {"Concat", fold_concat},
      {"Transpose", fold_transpose},
      {"Reshape", fold_reshape},
      {"Unsqueeze", fold_unsqueeze},
      {"Squeeze", fold_squeeze},
      {"Cast", cast},
      {"Expand", [](const Fold& f) { return expanded(f, f.input(0), integer_list(f.node, f.input(1))); }},
      {"Add", [](const Fold& f) { return binary(f, std::plus<>()); }},
      {"Sub", [](const Fold& f) { return binary(f, std::minus<>()); }},
      {"Mul", [](const Fold& f) { return binary(f, std::multiplies<>()); }},
      {"Div", [](const Fold& f) { return binary(f, std::divides<>()); }},
      {"Equal", [](const Fold& f) { return binary(f, std::equal_to<>(), DType::u8); }},
      {"Less", [](const Fold& f) { return binary(f, std::less<>(), DType::u8); }},
      {"LessOrEqual", [](const Fold& f) { return binary(f, std::less_equal<>(), DType::u8); }},
      {"Greater", [](const Fold& f) { return binary(f, std::greater<>(), DType::u8); }},
      {"GreaterOrEqual", [](const Fold& f) { return binary(f, std::greater_equal<>(), DType::u8); }},
      {"And", [](const Fold& f) { return binary(f, std::logical_and<>(), DType::u8); }},
      {"Or", [](const Fold& f) { return binary(f, std::logical_or<>(), DType::u8); }},
      {"Not", [](const Fold& f) { return unary(f, std::logical_not<>()); }},
      {"Mod", modulo},
      {"Pow", [](const Fold& f) { return binary(f, [](double a, double b) { return std::pow(a, b); }); }},
      {"Min",
       [](const Fold& f) {
         // `a != a`: a NaN in either operand is the result.
         return combine(f, [](double a, double b) { return a < b || a != a ? a : b; });
       }},
      {"Max",
       [](const Fold& f) { return combine(f, [](double a, double b) { return a > b || a != a ? a : b; }); }},
      {"Range", range},
      {"Trilu", trilu},
      {"Size", [](const Fold& f) { return Tensor::from({f.input(0).numel()}, {}); }},
      {"Where", where},
      {"Flatten", fold_flatten},
      {"Sum", [](const Fold& f) { return combine(f, std::plus<>()); }},
      {"MatMul", fold_matmul},
      {"Softmax", fold_softmax},
      {"LogSoftmax", fold_softmax},
      {"CumSum", fold_cumsum},
      {"Pad", fold_pad},
      {"ReduceSum", fold_reduce},
      {"ReduceMean", fold_reduce},
      {"ReduceMax", fold_reduce},
      {"ReduceMin", fold_reduce},
      {"ReduceProd", fold_reduce},
      {"ReduceL1", fold_reduce},
      {"ReduceL2", fold_reduce},
      {"ReduceSumSquare", fold_reduce},
      {"ReduceLogSum", fold_reduce},
      {"ReduceLogSumExp", fold_reduce},
      {"Clip", clip},
      {"Xor", [](const Fold& f) { return binary(f, std::not_equal_to<>(), DType::u8); }},
      {"IsNaN",
       [](const Fold& f) { return unary(f, [](double v) { return double(v != v); }).to(DType::u8); }},
      {"Sign",
       [](const Fold& f) { return unary(f, [](double v) { return double(v > 0) - double(v < 0); }); }},
      {"Relu", [](const Fold& f) { return unary(f, [](double v) { return v < 0 ? 0 : v; }); }},
      {"Sigmoid", [](const Fold& f) { return unary(f, [](double v) { return 1 / (1 + std::exp(-v)); }); }},
      {"Softplus",
       [](const Fold& f) {
         return unary(f, [](double v) { return std::max(v, 0.0) + std::log1p(std::exp(-std::abs(v))); });
       }},
      {"Tanh", [](const Fold& f) { return unary(f, [](double v) { return std::tanh(v); }); }},
      {"Tan", [](const Fold& f) { return unary(f, [](double v) { return std::tan(v); }); }},
      {"Erf", [](const Fold& f) { return unary(f, [](double v) { return std::erf(v); }); }},
      {"Neg", [](const Fold& f) { return unary(f, std::negate<>()); }},
      {"Sqrt", [](const Fold& f) { return unary(f, [](double v) { return std::sqrt(v); }); }},
      {"Reciprocal", [](const Fold& f) { return unary(f, [](double v) { return 1 / v; }); }},
      {"Abs", [](const Fold& f) { return unary(f, [](double v) { return std::abs(v); }); }},
      {"Exp", [](const Fold& f) { return unary(f, [](double v) { return std::exp(v); }); }},
      {"Log", [](const Fold& f) { return unary(f, [](double v) { return std::log(v); }); }},
      {"Sin", [](const Fold& f) { return unary(f, [](double v) { return std::sin(v); }); }},
      {"Cos", [](const Fold& f) { return unary(f, [](double v) { return std::cos(v); }); }},
      {"Floor", [](const Fold& f) { return unary(f, [](double v) { return std::floor(v); }); }},
      {"Ceil", [](const Fold& f) { return unary(f, [](double v) { return std::ceil(v); }); }},
      {"Round", [](const Fold& f) { return unary(f, [](double v) { return std::rint(v); }); }},
  };
  return table;
}

}  // namespace

void FoldBudget::take(const NodeReader& node, std::int64_t count) {
  node.check(count <= left, "its value would have {} elements: too many for a graph of this size", count);
  left -= count;
}

void FoldBudget::take(const NodeReader& node, const Shape& shape) {
  std::int64_t count = 1;
  for (const auto size : shape)
    // Limited to about 2^62 before the multiplication, so that the product fits int64.
    count = size == 0 ? 0 : std::min(count, kLargestSize * kLargestSize / size) * size;
  take(node, count);
}

std::optional<Tensor> fold(const NodeReader& node, const std::vector<Tensor>& inputs, FoldBudget& budget) {
  const auto found = operators().find(node.node().op);
  // Only operators of the table have checked attributes and inputs.
  const bool known = node.node().domain.empty() && find_operator(node.node()) != nullptr;
  if (!known || found == operators().end()) return std::nullopt;
  try {
    return found->second(Fold{node, inputs, budget});
  } catch (const ArgumentError& error) {
    // Errors of tensor functions do not name the node.
    if (std::string_view(error.what()).starts_with("[import_onnx] node ")) throw;
    node.fail("{}", error.what());
  }
}

std::vector<std::int64_t> integer_list(const NodeReader& node, const Tensor& tensor) {
  node.check(tensor.rank() <= 1 && !is_floating(tensor.dtype()) && bit_width(tensor.dtype()) >= 8,
             "an input is {}: a list of whole numbers is needed", tensor.describe());
  return tensor.to(DType::i64).to_vector<std::int64_t>();
}

Tensor shape_tensor(const NodeReader& node, const Shape& shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto at = [&](const char* key, std::int64_t fallback) {
    const auto given = node.integer(key, fallback, -kLargestSize, kLargestSize);
    // ONNX clamps 'start' and 'end' to the rank.
    return std::clamp<std::int64_t>(given < 0 ? given + rank : given, 0, rank);
  };
  const auto begin = at("start", 0), end = std::max(begin, at("end", rank));
  return Tensor::from(Shape(shape.begin() + begin, shape.begin() + end), {end - begin});
}

std::vector<int> normalized_axes(const NodeReader& node, const std::vector<std::int64_t>& axes, int rank) {
  std::vector<int> out;
  for (const auto axis : axes) {
    node.check(axis >= -rank && axis < rank, "axis {} of {} axes", axis, rank);
    const int from_front = static_cast<int>(axis < 0 ? axis + rank : axis);
    node.check(std::ranges::find(out, from_front) == out.end(), "it has axis {} twice", axis);
    out.push_back(from_front);
  }
  return out;
}

namespace {

constexpr std::int64_t kSmallGraph = std::int64_t{1} << 22;  // elements that every file may create

std::int64_t element_count(const OnnxModel& model) {
  std::int64_t count = 0;
  for (const auto& initializer : model.initializers) count += initializer.value.numel();
  return count;
}

/// Whether the node repeats a value for each sample. Layers do that instead.
bool is_of_samples(const OnnxNode& node, const std::vector<Tensor>& inputs) {
  const bool of_shape = node.op == "ConstantOfShape", expands = node.op == "Expand" || node.op == "Tile";
  // Index of the input with the target shape or the repeats.
  const std::size_t at = of_shape ? 0 : 1;
  if ((!of_shape && !expands) || inputs.size() <= at || inputs[at].rank() > 1) return false;
  return batch_axis(inputs[at].to(DType::i64).to_vector<std::int64_t>()) >= 0;
}

/// Whether the tensor looks trained, rather than like a mask, a count or a constant.
bool is_learnable(const Tensor& value) {
  if (!is_floating(value.dtype()) || value.numel() < 2) return false;
  return std::ranges::all_of(value.to(DType::f32).to_vector<float>(),
                             [](float v) { return std::isfinite(v) && std::abs(v) < 1e4F; });
}

}  // namespace

// The limit grows with the file, so a small file cannot make the importer allocate much memory.
std::int64_t element_limit(const OnnxModel& model) { return 4 * element_count(model) + kSmallGraph; }

FixedValues::FixedValues(const OnnxModel& model) : budget_{element_limit(model)} {
  for (const auto& initializer : model.initializers)
    add(initializer.name, initializer.value, is_learnable(initializer.value));
}

bool FixedValues::fold_node(const OnnxNode& node) {
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Tensor* value = find(node.inputs[i]);
    if (value == nullptr && !node.inputs[i].empty()) return false;
    inputs.push_back(value == nullptr ? Tensor() : *value);
  }
  if (node.outputs.empty() || is_of_samples(node, inputs)) return false;
  // The value of a fixed input has a batch of 1, but its Shape must have the symbolic batch.
  if (const auto input = batch_shapes_.find(node.inputs.empty() ? "" : node.inputs[0]);
      node.op == "Shape" && input != batch_shapes_.end()) {
    add(node.outputs[0], shape_tensor(NodeReader(node), input->second), false);
    return true;
  }
  const bool learned = std::ranges::any_of(node.inputs, [&](const auto& name) { return is_learned(name); });
  if (node.op == "Split" && node.domain.empty()) {
    const NodeReader reader(node);
    const auto parts = fold_split({reader, inputs, budget_}, node.outputs.size());
    for (std::size_t i = 0; i < parts.size(); ++i)
      if (!node.outputs[i].empty()) add(node.outputs[i], parts[i], learned);
    return true;
  }
  const auto value = fold(NodeReader(node), inputs, budget_);
  if (value) add(node.outputs[0], *value, learned && is_floating(value->dtype()));
  return value.has_value();
}

}  // namespace fq::detail
