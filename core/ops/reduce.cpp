#include "fakequant/core/ops/reduce.h"

#include <algorithm>

#include "fakequant/core/ops/detail/elementwise.h"

namespace fq::ops {
namespace {

/// The shapes of a reduction, and what a trace says of it.
struct Axes {
  Shape kept;    ///< the reduced axes of size 1
  Shape result;  ///< without them, unless they stay
  std::int64_t count = 1;
  Attributes attributes;

  Axes(std::string_view op, const Shape& x, const std::vector<int>& given, bool keep) : kept(x) {
    std::vector<bool> gone(x.size(), given.empty());
    for (const int axis : given) {
      const auto at = static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(x.size()), op));
      FQ_CHECK(!gone[at], op, "axis {} is named twice", axis);
      gone[at] = true;
    }
    std::vector<std::int64_t> named;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (gone[i]) {
        count *= x[i];
        kept[i] = 1;
        named.push_back(static_cast<std::int64_t>(i));
      }
      if (!gone[i] || keep) result.push_back(kept[i]);
    }
    attributes = detail::traced([&] { return Attributes{{"axes", named}, {"keep_axes", keep}}; });
  }
};

Tensor joined(const Tensor& x, const Shape& shape, const detail::Reduction& reduction) {
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  detail::run(y.device(), &detail::Kernels::reduce_to, x, reduction, y);
  return y;
}

/// The sum times a factor, back at the shape of x.
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
  FQ_CHECK(along.count > 0, op, "nothing lies along the axes of {}: there is none to choose",
           to_string(x.tensor.shape()));
  const Tensor found = joined(x.tensor, along.kept, reduction);
  const auto backward = [op, saved = detail::Saved(x.tensor), found](const Tensor& dy) {
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
