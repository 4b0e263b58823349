#pragma once

/// Every operator with the inputs that the contract suite tries it on. An operator declared in core/ops
/// without an entry here fails the suite.

#include <iosfwd>
#include <string>
#include <vector>

#include "core/gradient_check.h"

namespace fq::test {

/// How one input is made.
struct Input {
  Shape shape;
  double low = -2.0, high = 2.0;
  std::vector<double> kinks = {};  ///< values are kept off these
  bool distinct = false;           ///< no two values near each other, instead of random ones
  bool differentiable = true;
  bool batched = true;  ///< axis 0 is a batch, which may be empty
};

using Vars = std::vector<Variable>;
inline const Shape image{2, 3, 4, 5};
/// An input without a batch.
[[nodiscard]] inline Input fixed(Shape shape, double low = -2.0, double high = 2.0) {
  Input input{std::move(shape), low, high};
  input.batched = false;
  return input;
}

struct OperatorCase {
  std::string op;       ///< as declared in core/ops
  std::string variant;  ///< letters and digits, may be empty
  std::vector<Input> inputs;
  Function apply;
  /// Tolerance of |f32 - f64| relative to max(1, |f64|): a few roundings of 6e-8 each on values up to some
  /// tens.
  double tolerance = 2e-6;
  bool empty_batch = true;      ///< false where an empty batch has no meaning
  std::string trace_name = {};  ///< of the node in a trace where it is not `op`
  Function surrogate = {};      ///< function with the expected gradient, for straight-through operators
};

void PrintTo(const OperatorCase& tested, std::ostream* out);

/// The cases below, and a case for each plain function that has none there.
[[nodiscard]] const std::vector<OperatorCase>& operator_cases();
/// A case for each plain function of the operator table, of inputs from -3 to 3, and for each of its choices.
[[nodiscard]] std::vector<OperatorCase> plain_cases();

// One list a header of core/ops.
[[nodiscard]] std::vector<OperatorCase> activation_cases();
[[nodiscard]] std::vector<OperatorCase> elementwise_cases();
[[nodiscard]] std::vector<OperatorCase> comparison_cases();
[[nodiscard]] std::vector<OperatorCase> function_cases();
[[nodiscard]] std::vector<OperatorCase> reduce_cases();
[[nodiscard]] std::vector<OperatorCase> resize_cases();
[[nodiscard]] std::vector<OperatorCase> norm_cases();
[[nodiscard]] std::vector<OperatorCase> pool_cases();
[[nodiscard]] std::vector<OperatorCase> shape_cases();
[[nodiscard]] std::vector<OperatorCase> loss_cases();
[[nodiscard]] std::vector<OperatorCase> product_cases();
[[nodiscard]] std::vector<OperatorCase> attention_cases();
[[nodiscard]] std::vector<OperatorCase> other_cases();
[[nodiscard]] std::vector<OperatorCase> quantize_cases();

}  // namespace fq::test
