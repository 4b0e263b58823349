#include "fakequant/core/ops/elementwise.h"

#include <algorithm>
#include <optional>

#include "fakequant/core/ops/detail/deferred_operators.h"
#include "fakequant/core/ops/detail/elementwise.h"

namespace fq::ops {
namespace {

using detail::combined;
using detail::reduced;
using detail::Saved;

/// Two inputs converted to floats, and whether each needs a gradient.
struct Pair {
  detail::Floats a, b;
  bool da, db;

  Pair(const Variable& left, const Variable& right, std::string_view op)
      : a(detail::floats(left, op)),
        b(detail::matching_floats(right, a.tensor, op)),
        da(a.variable.requires_grad()),
        db(b.variable.requires_grad()) {}

  [[nodiscard]] std::vector<Variable> variables() const { return {a.variable, b.variable}; }
  [[nodiscard]] Tensor apply(std::string_view op, const detail::BinaryFunction& f) const {
    return combined(op, a.tensor, b.tensor, f);
  }
};

/// Records y = f(a, b). `slopes` returns both gradients before reduction to the input shapes; an undefined
/// tensor for an input that needs none.
template <class F>
Variable record_pair(std::string_view op, const Pair& in, const detail::BinaryFunction& f, F slopes) {
  const auto backward = [slopes, x = Saved(in.a.tensor), y = Saved(in.b.tensor), da = in.da,
                         db = in.db](const Tensor& dy) {
    std::vector<Tensor> out(2);
    if (da) out[0] = reduced(slopes(dy, x.get(), y.get(), true), x.get().shape());
    if (db) out[1] = reduced(slopes(dy, x.get(), y.get(), false), y.get().shape());
    return out;
  };
  return detail::record(op, in.apply(op, f), in.variables(), backward);
}

Tensor product(const Tensor& a, const Tensor& b) { return combined("multiply", a, b, detail::Multiply{}); }
Tensor quotient(const Tensor& a, const Tensor& b) { return combined("div", a, b, detail::Divide{}); }

// The result stays unrounded (CodeAddition) until its reader knows the output grid. Kernels need both
// operands in one layout.
Variable add_codes(const Variable& a, const Variable& b) {
  const auto& x = *a.quantized();
  const auto& y = *b.quantized();
  const Accumulator sum{
      CodeAddition{detail::with_codes(x, x.codes), detail::with_codes(y, y.codes.to(x.layout()))}};
  const auto backward = [](const Tensor& dy) { return std::vector<Tensor>{dy, dy}; };
  return detail::with_recompute(detail::record("add", sum, {a, b}, backward), [sum] { return Value(sum); });
}

/// Sets how backward recomputes y, the sum of a recomputable and another value. The other value, for example
/// a residual, is kept anyway, so only the first is recomputed. If both are recomputable, y is kept:
/// otherwise each block of a network would recompute all blocks before it.
Variable sum_made_again(std::string_view op, const Pair& in, const detail::BinaryFunction& f, Variable y) {
  const detail::Again left = detail::recompute_function(in.a.variable),
                      right = detail::recompute_function(in.b.variable);
  if (static_cast<bool>(left) == static_cast<bool>(right)) return y;
  const Saved other(left ? in.b.tensor : in.a.tensor);
  return detail::with_recompute(std::move(y), [=] {
    const Tensor made = std::get<Tensor>(left ? left() : right());
    return Value(left ? combined(op, made, other.get(), f) : combined(op, other.get(), made, f));
  });
}

/// Returns a + sign * b.
Variable add_or_sub(std::string_view op, const Variable& a, const Variable& b,
                    const detail::BinaryFunction& f, double sign) {
  const Pair in(a, b, op);
  const auto backward = [from = in.a.tensor.shape(), to = in.b.tensor.shape(), sign, da = in.da,
                         db = in.db](const Tensor& dy) {
    std::vector<Tensor> out(2);
    if (da) out[0] = reduced(dy, from);
    if (db) out[1] = sign > 0 ? reduced(dy, to) : detail::scaled(reduced(dy, to), sign);
    return out;
  };
  return sum_made_again(op, in, f, detail::record(op, in.apply(op, f), in.variables(), backward));
}

/// Returns the smaller element or, with the inputs of the gradient shares exchanged, the larger one.
Variable extreme(std::string_view op, const Variable& a, const Variable& b, const detail::BinaryFunction& f,
                 bool smaller) {
  return record_pair(op, Pair(a, b, op), f,
                     [smaller](const Tensor& dy, const Tensor& x, const Tensor& y, bool first) {
                       // LessShare splits the gradient of equal elements in halves, as PyTorch does.
                       const Tensor share = smaller == first ? combined("minimum", x, y, detail::LessShare{})
                                                             : combined("minimum", y, x, detail::LessShare{});
                       return product(dy, share);
                     });
}

// A comparison is constant almost everywhere, so it has no gradient.
Variable compare(std::string_view op, const Variable& a, const Variable& b, const detail::BinaryFunction& f,
                 bool exchanged = false) {
  const Pair in(a, b, op);
  const NoGrad constant;
  return detail::record(
      op, exchanged ? combined(op, in.b.tensor, in.a.tensor, f) : combined(op, in.a.tensor, in.b.tensor, f),
      in.variables(), Backward());
}

Variable scale_operator(std::string_view op, const Variable& input, double factor, Attributes attributes) {
  const auto x = detail::floats(input, op);
  const auto backward = [factor](const Tensor& dy) {
    return std::vector<Tensor>{detail::scaled(dy, factor)};
  };
  return detail::record(op, detail::scaled(x.tensor, factor), {x.variable}, backward, std::move(attributes));
}

Attributes number(std::string name, double value) {
  return detail::traced([&] { return Attributes{{std::move(name), value}}; });
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  if (a.quantized() != nullptr && b.quantized() != nullptr && detail::is_plain(*a.quantized()) &&
      detail::is_plain(*b.quantized()) && a.shape() == b.shape())
    return add_codes(a, b);
  if (auto y = detail::deferred_add("add", a, b)) return *y;
  return add_or_sub("add", a, b, detail::Add{}, 1.0);
}

Variable sub(const Variable& a, const Variable& b) {
  return add_or_sub("sub", a, b, detail::Subtract{}, -1.0);
}

Variable multiply(const Variable& a, const Variable& b) {
  const Pair in(a, b, "multiply");
  // dx = dy * b and db = dy * a: a factor is saved only if the other one needs a gradient.
  const auto kept = [](const detail::Floats& x, bool read) {
    return read ? std::optional(detail::SavedFloats(x.variable)) : std::nullopt;
  };
  const auto backward = [left = kept(in.a, in.db), right = kept(in.b, in.da), from = in.a.tensor.shape(),
                         to = in.b.tensor.shape(), da = in.da, db = in.db](const Tensor& dy) {
    std::vector<Tensor> out(2);
    if (da) out[0] = reduced(product(dy, right->get()), from);
    if (db) out[1] = reduced(product(dy, left->get()), to);
    return out;
  };
  return detail::record("multiply", in.apply("multiply", detail::Multiply{}), in.variables(), backward);
}

Variable div(const Variable& a, const Variable& b) {
  return record_pair("div", Pair(a, b, "div"), detail::Divide{},
                     [](const Tensor& dy, const Tensor& x, const Tensor& y, bool first) {
                       const Tensor dx = quotient(dy, y);
                       return first ? dx : detail::scaled(product(dx, quotient(x, y)), -1.0);
                     });
}

Variable pow(const Variable& a, const Variable& b) {
  return record_pair("pow", Pair(a, b, "pow"), detail::Power{},
                     [](const Tensor& dy, const Tensor& x, const Tensor& y, bool first) {
                       return product(dy, first ? combined("pow", x, y, detail::PowerSlope{})
                                                : combined("pow", x, y, detail::PowerLog{}));
                     });
}

Variable minimum(const Variable& a, const Variable& b) {
  return extreme("minimum", a, b, detail::Minimum{}, true);
}
Variable maximum(const Variable& a, const Variable& b) {
  return extreme("maximum", a, b, detail::Maximum{}, false);
}

Variable less(const Variable& a, const Variable& b) { return compare("less", a, b, detail::Less{}); }
Variable less_equal(const Variable& a, const Variable& b) {
  return compare("less_equal", a, b, detail::LessEqual{});
}
Variable greater(const Variable& a, const Variable& b) {
  return compare("greater", a, b, detail::Less{}, true);
}
Variable greater_equal(const Variable& a, const Variable& b) {
  return compare("greater_equal", a, b, detail::LessEqual{}, true);
}
Variable equal(const Variable& a, const Variable& b) { return compare("equal", a, b, detail::Equal{}); }
Variable not_equal(const Variable& a, const Variable& b) {
  return compare("not_equal", a, b, detail::NotEqual{});
}

Variable where(const Variable& condition, const Variable& a, const Variable& b) {
  constexpr std::string_view op = "where";
  const Pair in(a, b, op);
  const auto c = detail::matching_floats(condition, in.a.tensor, op);
  // Selects instead of multiplying by the condition: a NaN or an infinity in the other branch then has no
  // effect.
  const Tensor yes = combined(op, in.a.tensor, c.tensor, detail::KeepWhere{}),
               no = combined(op, in.b.tensor, c.tensor, detail::KeepUnless{});
  const auto backward = [saved = Saved(c.tensor), from = in.a.tensor.shape(), to = in.b.tensor.shape(),
                         dc = c.variable.requires_grad(), da = in.da, db = in.db, op](const Tensor& dy) {
    std::vector<Tensor> out(3);
    if (dc) out[0] = Tensor::zeros(saved.get().shape(), dy.dtype(), dy.device());
    if (da) out[1] = reduced(combined(op, dy, saved.get(), detail::KeepWhere{}), from);
    if (db) out[2] = reduced(combined(op, dy, saved.get(), detail::KeepUnless{}), to);
    return out;
  };
  return detail::record(op, combined(op, yes, no, detail::Add{}), {c.variable, in.a.variable, in.b.variable},
                        backward);
}

Variable scale(const Variable& x, double factor) {
  return scale_operator("scale", x, factor, number("factor", factor));
}
Variable shift(const Variable& x, double by) {
  return detail::apply_function("shift", x, detail::Shift{by}, number("by", by));
}
Variable pow(const Variable& x, double exponent) {
  return detail::apply_function("power", x, detail::PowerOf{exponent}, number("exponent", exponent));
}
Variable neg(const Variable& x) { return scale_operator("neg", x, -1.0, {}); }

Variable reciprocal(const Variable& x) {
  return detail::apply_function("reciprocal", x, detail::Reciprocal{});
}
Variable exp(const Variable& x) { return detail::apply_function("exp", x, detail::Exp{}); }
Variable log(const Variable& x) { return detail::apply_function("log", x, detail::Log{}); }
Variable sqrt(const Variable& x) { return detail::apply_function("sqrt", x, detail::Sqrt{}); }
Variable abs(const Variable& x) { return detail::apply_function("abs", x, detail::Abs{}); }
Variable erf(const Variable& x) { return detail::apply_function("erf", x, detail::Erf{}); }
Variable sin(const Variable& x) { return detail::apply_function("sin", x, detail::Sin{}); }
Variable cos(const Variable& x) { return detail::apply_function("cos", x, detail::Cos{}); }

using Kind = detail::Step::Kind;
Variable floor(const Variable& x) { return detail::apply_function("floor", x, detail::Step{Kind::floor}); }
Variable ceil(const Variable& x) { return detail::apply_function("ceil", x, detail::Step{Kind::ceil}); }
Variable round(const Variable& x) { return detail::apply_function("round", x, detail::Step{Kind::round}); }
Variable sign(const Variable& x) { return detail::apply_function("sign", x, detail::Step{Kind::sign}); }
Variable trunc(const Variable& x) { return detail::apply_function("trunc", x, detail::Step{Kind::trunc}); }

Variable round_to(const Variable& x, DType type) {
  FQ_CHECK(type == DType::f16 || type == DType::bf16, "round_to", "the type is {}: use f16 or bf16",
           name(type));
  return detail::apply_function("round_to", x, detail::RoundTo{type == DType::bf16}, detail::traced([&] {
                                  return Attributes{{"type", std::string(name(type))}};
                                }));
}

namespace {

/// Shapes of a reduction, and its attributes in a trace.
struct Axes {
  Shape kept;    ///< shape with the reduced axes of size 1
  Shape result;  ///< shape without the reduced axes, unless they are kept
  std::int64_t count = 1;
  Attributes attributes;

  Axes(std::string_view op, const Shape& x, const std::vector<int>& given, bool keep) : kept(x) {
    std::vector<bool> is_reduced(x.size(), given.empty());
    for (const int axis : given) {
      const auto at = static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(x.size()), op));
      FQ_CHECK(!is_reduced[at], op, "axis {} is named twice", axis);
      is_reduced[at] = true;
    }
    std::vector<std::int64_t> reduced_axes;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (is_reduced[i]) {
        count *= x[i];
        kept[i] = 1;
        reduced_axes.push_back(static_cast<std::int64_t>(i));
      }
      if (!is_reduced[i] || keep) result.push_back(kept[i]);
    }
    attributes = detail::traced([&] { return Attributes{{"axes", reduced_axes}, {"keep_axes", keep}}; });
  }
};

Tensor joined(const Tensor& x, const Shape& shape, const detail::Reduction& reduction) {
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  detail::run(y.device(), &detail::Kernels::reduce_axes, x, reduction, y);
  return y;
}

/// Returns the sum times a factor. The gradient is broadcast to the shape of x.
Variable weighted_sum(std::string_view op, const Variable& input, const std::vector<int>& axes, bool keep,
                      bool divide) {
  const auto x = detail::floats(input, op);
  const Axes along(op, x.tensor.shape(), axes, keep);
  const double factor = divide ? 1.0 / static_cast<double>(std::max<std::int64_t>(along.count, 1)) : 1.0;
  const Tensor sums = joined(x.tensor, along.kept, detail::Total{});
  const auto backward = [kept = along.kept, factor, shape = x.tensor.shape(),
                         layout = x.tensor.layout()](const Tensor& dy) {
    const Tensor rows = dy.to(Layout::row_major).reshape(kept);
    return std::vector<Tensor>{
        detail::spread(factor == 1.0 ? rows : detail::scaled(rows, factor), shape, layout)};
  };
  return detail::record(op, (factor == 1.0 ? sums : detail::scaled(sums, factor)).reshape(along.result),
                        {x.variable}, backward, along.attributes);
}

Variable extreme(std::string_view op, const Variable& input, const std::vector<int>& axes, bool keep,
                 const detail::Reduction& reduction) {
  const auto x = detail::floats(input, op);
  const Axes along(op, x.tensor.shape(), axes, keep);
  FQ_CHECK(along.count > 0, op, "{} has no elements along the reduced axes: use one or more",
           to_string(x.tensor.shape()));
  const Tensor found = joined(x.tensor, along.kept, reduction);
  const auto backward = [op, saved = detail::Saved(x.tensor), found](const Tensor& dy) {
    // Equal extremes share the gradient evenly, as torch.amax does.
    const Tensor chosen = detail::combined(op, saved.get(), found, detail::Equal{});
    const Tensor share = detail::combined(op, dy.to(Layout::row_major).reshape(found.shape()),
                                          joined(chosen, found.shape(), detail::Total{}), detail::Divide{});
    return std::vector<Tensor>{detail::combined(op, chosen, share, detail::Multiply{})};
  };
  return detail::record(op, found.reshape(along.result), {x.variable}, backward, along.attributes);
}

}  // namespace

Variable sum(const Variable& x, const std::vector<int>& axes, bool keep_axes) {
  return weighted_sum("sum", x, axes, keep_axes, false);
}
Variable mean(const Variable& x, const std::vector<int>& axes, bool keep_axes) {
  return weighted_sum("mean", x, axes, keep_axes, true);
}
Variable max(const Variable& x, const std::vector<int>& axes, bool keep_axes) {
  return extreme("max", x, axes, keep_axes, detail::Largest{});
}
Variable min(const Variable& x, const std::vector<int>& axes, bool keep_axes) {
  return extreme("min", x, axes, keep_axes, detail::Smallest{});
}

}  // namespace fq::ops
