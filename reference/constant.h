#pragma once

/// Operands of functions that have no gradient: they are written as numbers and lists, or handed over as
/// tensors.
///
///     tripy::quantize({{1, 2}, {3, 4}}, {0.5, 0.25}, DType::i8, 0);  // nested lists, a list for the scale
///     tripy::quantize(x, 0.5, DType::i8);                            // a tensor, a number

#include <initializer_list>
#include <string_view>
#include <vector>

#include "fakequant/core/variable.h"

namespace fq {

/// A number, a list, nested lists, a tensor, or a Variable that needs no gradient: `0.5`, `{0.5, 0.25}`,
/// `{{1, 2}, {3, 4}}`. Lists must be rectangular and hold numbers only: ArgumentError. Numbers are kept as
/// f64 until the function says which type they take; tensors keep theirs and are shared.
class Constant {
 public:
  Constant() = default;  ///< not given
  /// A number, which is written as 0.5.
  Constant(double number);  // NOLINT(google-explicit-constructor): written as 0.5
  /// A list of numbers, or of lists of one shape.
  Constant(std::initializer_list<Constant> list);  // NOLINT(google-explicit-constructor)
  /// A tensor, whose dtype counts.
  Constant(Tensor tensor);  // NOLINT(google-explicit-constructor)
  /// The value of a Variable; it is refused where it needs a gradient.
  Constant(const Variable& variable);  // NOLINT(google-explicit-constructor)
  template <class T>
  Constant(const std::vector<T>& list)  // NOLINT(google-explicit-constructor)
      : Constant(joined({list.begin(), list.end()})) {}

  [[nodiscard]] bool defined() const noexcept { return value_.defined(); }
  /// Whether it was written as numbers, which take the type that the function wants.
  [[nodiscard]] bool is_literal() const noexcept { return literal_; }
  /// The values; numbers and lists of them in the type `literal`, of rank 0 for a number. Throws
  /// ArgumentError in the name of `function`, naming the operand as `what`, when it is missing or a Variable
  /// that needs a gradient.
  [[nodiscard]] Tensor tensor(std::string_view function, std::string_view what,
                              DType literal = DType::f32) const;

 private:
  [[nodiscard]] static Constant joined(const std::vector<Constant>& list);

  Tensor value_;
  bool literal_ = false;  // numbers, kept as f64
  bool needs_gradient_ = false;
};

}  // namespace fq
