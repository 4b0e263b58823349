#include <algorithm>
#include <cmath>

#include "fakequant/export/onnx/reader/element_types.h"
#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

ImportValue one(const OpImport& op, const char* type, const ImportValue& x, NodeOptions options = {},
                const std::string& suffix = {}) {
  return op.layer(type, std::move(options), {x}, {}, suffix);
}

ImportValue shifted(const OpImport& op, const ImportValue& x, double by, const std::string& suffix = {}) {
  return by == 0 ? x : one(op, "shift", x, {{"by", by}}, suffix);
}
ImportValue scaled(const OpImport& op, const ImportValue& x, double factor, const std::string& suffix = {}) {
  return factor == 1 ? x : one(op, "scale", x, {{"factor", factor}}, suffix);
}
// Model files cannot store infinity, so an open bound is 1e30 or -1e30.
ImportValue clipped(const OpImport& op, const ImportValue& x, double low, double high) {
  return one(op, "clip", x, {{"low", std::max(low, -1e30)}, {"high", std::min(high, 1e30)}});
}

std::size_t operand_rank(const ImportValue& x) { return x.is_constant() ? 0 : x.shape.size(); }

/// Returns the inputs as layers that broadcast: samples have the same axis, counted from the end.
std::vector<ImportValue> operands(const OpImport& op, std::size_t count) {
  op.check(op.input_count() == count, "it has {} inputs", op.input_count());
  std::size_t rank = 0;
  for (std::size_t i = 0; i < count; ++i) {
    op.check(op.has_input(i), "its input {} is missing", i);
    rank = std::max(rank, operand_rank(op.input(i)));
  }
  std::vector<ImportValue> out;
  // Axes broadcast from the end, so the distance of the batch from the end must be equal.
  std::ptrdiff_t samples = -1;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(op.operand(i, rank));
    if (out.back().fixed) continue;
    const auto behind = std::ssize(out.back().shape) - batch_axis(out.back().shape);
    op.check(samples < 0 || behind == samples, "its inputs broadcast so that samples of one meet other axes");
    samples = behind;
  }
  return out;
}

ImportValue both(const OpImport& op, const char* type) { return op.layer(type, {}, operands(op, 2)); }

/// Combines any number of inputs from the left.
ImportValue combine_inputs(const OpImport& op, const char* type) {
  op.check(op.input_count() >= 1, "it has no inputs");
  std::size_t rank = 0;
  for (std::size_t i = 0; i < op.input_count(); ++i) rank = std::max(rank, operand_rank(op.input(i)));
  ImportValue y = op.operand(0, rank);
  for (std::size_t i = 1; i < op.input_count(); ++i) {
    const ImportValue next = op.operand(i, rank);
    y = op.layer(type, {}, {y, next}, {}, i + 1 < op.input_count() ? type : "");
  }
  return y;
}

/// Finds the non-constant input if the other input is a single number. Else `x` is null.
struct WithNumber {
  const ImportValue* x = nullptr;
  double number = 0;
  bool first = false;  ///< whether the number is the first input

  explicit WithNumber(const OpImport& op) {
    // A number becomes an option of the layer. A learned number stays a parameter.
    if (op.input_count() != 2 || op.is_number(0) == op.is_number(1)) return;
    first = op.is_number(0);
    const ImportValue& other = op.input(first ? 1 : 0);
    if (other.is_constant() || op.input(first ? 0 : 1).learned) return;
    number = op.scalar(first ? 0 : 1);
    op.check(!std::isnan(number), "its constant is NaN");
    x = std::isfinite(number) ? &other : nullptr;
  }
};

/// Reads the options of a plain function that differ from the defaults.
NodeOptions plain_options(const OpImport& op, const OperatorSchema& row) {
  NodeOptions options;
  for (const OperatorOption& option : row.options()) {
    if (option.onnx.empty()) continue;
    // Options with the default are left out, so that imported model files stay short.
    const std::string attribute(option.onnx), name(option.name);
    if (option.is_choice()) {
      const std::string text = op.text(attribute, std::string(option.choices[0]));
      op.check(std::ranges::find(option.choices, text) != option.choices.end(), "its attribute '{}' is '{}'",
               attribute, text);
      if (text != option.choices[0]) options[name] = text;
    } else if (option.is_integer) {
      const auto fallback = static_cast<std::int64_t>(option.fallback);
      const auto value = op.integer(attribute, fallback, static_cast<std::int64_t>(option.low),
                                    static_cast<std::int64_t>(option.high));
      if (value != fallback) options[name] = value;
    } else if (const double value = op.number(attribute, option.fallback); value != option.fallback) {
      options[name] = value;
    }
  }
  return options;
}

ImportValue plain(const OpImport& op, const OperatorSchema& row) {
  const auto inputs = row.inputs == 1 ? std::vector{op.value()} : operands(op, 2);
  return op.layer(std::string(row.name), plain_options(op, row), inputs);
}

}  // namespace

ImportValue plain_function(const OpImport& op) { return plain(op, *plain_row(op.node().op)); }

ImportValue wrapped_function(const OpImport& op) { return wrapped(op, plain_function(op)); }

ImportValue recognised_function(const OpImport& op) {
  const OperatorSchema& row = *operator_schema(op.node().op);
  std::string words(row.name);
  std::ranges::replace(words, '_', ' ');
  op.recognise(words);
  return plain(op, row);
}

ImportValue add(const OpImport& op) {
  if (const WithNumber with(op); with.x != nullptr) return wrapped(op, shifted(op, *with.x, with.number));
  return wrapped(op, both(op, "add"));
}

ImportValue subtract(const OpImport& op) {
  const WithNumber with(op);
  if (with.x == nullptr) return wrapped(op, both(op, "sub"));
  if (!with.first) return wrapped(op, shifted(op, *with.x, -with.number));
  return wrapped(op, shifted(op, one(op, "neg", *with.x, {}, with.number == 0 ? "" : "neg"), with.number));
}

ImportValue multiply(const OpImport& op) {
  const ElementType type = op.result_type();
  op.check(
      !type.is_integer() || bit_width(type.dtype) != 16,
      "its products of {} have up to 32 bits: whole numbers up to 2^24 are supported, convert them to i32",
      name(type.dtype));
  if (const WithNumber with(op); with.x != nullptr) return wrapped(op, scaled(op, *with.x, with.number));
  return wrapped(op, both(op, "multiply"));
}

/// Divides. An integer quotient loses its fraction. In f32 no quotient of numbers up to 2^24 rounds up to the
/// next integer, but a product with the reciprocal might.
ImportValue divide(const OpImport& op) {
  if (op.result_type().is_integer()) return truncated(op, both(op, "div"));
  const WithNumber with(op);
  if (with.x == nullptr || (!with.first && with.number == 0)) return both(op, "div");
  if (!with.first) return scaled(op, *with.x, 1 / with.number);
  return scaled(op, one(op, "reciprocal", *with.x, {}, with.number == 1 ? "" : "reciprocal"), with.number);
}

/// Computes powers of integers. The result with a negative exponent is at most 1/2 and is rounded to 0.
ImportValue whole_power(const OpImport& op) {
  const bool whole = op.type(1).is_integer() || (op.is_number(1) && op.scalar(1) == std::floor(op.scalar(1)));
  op.check(whole, "it raises whole numbers to a fractional power: convert them to f32 before it");
  return one(op, "round", op.layer("pow", {}, operands(op, 2), {}, "pow"));
}

ImportValue power(const OpImport& op) {
  if (op.result_type().is_integer()) return whole_power(op);
  const WithNumber with(op);
  if (with.x == nullptr || with.first) return both(op, "pow");
  if (with.number == 1) return *with.x;
  // A square root is correctly rounded, a general power is not.
  if (with.number == 0.5) return one(op, "sqrt", *with.x);
  return one(op, "power", *with.x, {{"exponent", with.number}});
}

ImportValue minimum(const OpImport& op) {
  if (const WithNumber with(op); with.x != nullptr) return clipped(op, *with.x, -1e30, with.number);
  return combine_inputs(op, "minimum");
}

ImportValue maximum(const OpImport& op) {
  if (const WithNumber with(op); with.x != nullptr)
    return with.number == 0 ? one(op, "relu", *with.x) : clipped(op, *with.x, with.number, 1e30);
  return combine_inputs(op, "maximum");
}

ImportValue sum_of_all(const OpImport& op) { return combine_inputs(op, "add"); }

/// Booleans are 1 and 0.
ImportValue negation(const OpImport& op) { return shifted(op, one(op, "neg", op.value(), {}, "neg"), 1); }
ImportValue conjunction(const OpImport& op) { return both(op, "multiply"); }
ImportValue disjunction(const OpImport& op) { return both(op, "maximum"); }
ImportValue exclusive_or(const OpImport& op) { return both(op, "not_equal"); }
ImportValue where(const OpImport& op) { return op.layer("where", {}, operands(op, 3)); }

namespace {

/// Reduces a value with the layer of that type.
ImportValue reduced(const OpImport& op, const ImportValue& x, const char* type,
                    const std::string& suffix = {}) {
  const int rank = static_cast<int>(x.shape.size());
  const auto given = op.list("axes", 1);
  if (given.empty() && op.integer("noop_with_empty_axes", 0, 0, 1) == 1) return x;
  // Without axes, ONNX reduces all of them.
  auto axes = normalized_axes(op, given, rank);
  if (axes.empty())
    for (int axis = 0; axis < rank; ++axis) axes.push_back(axis);
  const int samples = batch_axis(x.shape);
  op.check(std::ranges::find(axes, samples) == axes.end(), "it mixes samples: axis {} is one of its axes",
           samples);
  NodeOptions options{{"axes", Shape(axes.begin(), axes.end())}};
  if (op.integer("keepdims", 1, 0, 1) == 1) options["keep_axes"] = true;
  return one(op, type, x, options, suffix);
}

}  // namespace

ImportValue reduce_sum(const OpImport& op) { return reduced(op, op.value(), "sum"); }
ImportValue reduce_max(const OpImport& op) { return reduced(op, op.value(), "max"); }
ImportValue reduce_min(const OpImport& op) { return reduced(op, op.value(), "min"); }
ImportValue reduce_any_mean(const OpImport& op) {
  const ImportValue& x = op.value();
  if (!op.result_type().is_integer()) return reduced(op, x, "mean");
  const ImportValue y = reduced(op, x, "sum", "sum");
  // The sum of integers is exact, the mean is not: its fraction is dropped after the division.
  const auto count = static_cast<double>(numel(x.shape) / numel(y.shape));
  return truncated(op, op.layer("div", {}, {y, op.parameter(Tensor::full({1}, count), {1}, false)}));
}
ImportValue reduce_l1(const OpImport& op) {
  return reduced(op, one(op, "abs", op.value(), {}, "abs"), "sum");
}
ImportValue reduce_sum_square(const OpImport& op) {
  return reduced(op, one(op, "power", op.value(), {{"exponent", 2}}, "square"), "sum");
}
ImportValue reduce_l2(const OpImport& op) {
  return truncated(
      op,
      one(op, "sqrt", reduced(op, one(op, "power", op.value(), {{"exponent", 2}}, "square"), "sum", "sum")));
}
namespace {

void check_floats(const OpImport& op) {
  op.check(!op.result_type().is_integer(), "its numbers are {}: convert them to f32 before it",
           name(op.result_type().dtype));
}

}  // namespace

ImportValue reduce_log_sum(const OpImport& op) {
  check_floats(op);
  return one(op, "log", reduced(op, op.value(), "sum", "sum"));
}
ImportValue reduce_log_sum_exp(const OpImport& op) {
  check_floats(op);
  return one(op, "log", reduced(op, one(op, "exp", op.value(), {}, "exp"), "sum", "sum"));
}

}  // namespace fq::detail::onnx_ops
