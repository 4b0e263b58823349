#include "fakequant/core/backend/ranges.h"

#include <algorithm>
#include <cmath>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

/// Returns the kept axes, followed by the others in order.
std::vector<int> kept_first(const std::vector<int>& kept, int rank) {
  std::vector<int> order = kept;
  for (int axis = 0; axis < rank; ++axis)
    if (std::ranges::find(kept, axis) == kept.end()) order.push_back(axis);
  return order;
}

}  // namespace

std::vector<int> kept_axes(const Axes& kept, int rank, std::string_view function) {
  std::vector<int> axes;
  for (const int axis : kept.values()) axes.push_back(normalize_axis(axis, rank, function));
  std::ranges::sort(axes);
  FQ_CHECK(std::ranges::adjacent_find(axes) == axes.end(), function,
           "an axis is named twice: name each axis once");
  // As in ModelOpt, the tensor has one range if no axis is left to reduce.
  if (static_cast<int>(axes.size()) == rank) axes.clear();
  return axes;
}

Shape range_shape(const Shape& shape, const std::vector<int>& axes) {
  Shape out(shape.size(), 1);
  for (const int axis : axes) out[static_cast<std::size_t>(axis)] = shape[static_cast<std::size_t>(axis)];
  // ModelOpt squeezes a range of one element to rank 0.
  return numel(out) == 1 ? Shape{} : out;
}

RangeRows range_rows(const Tensor& x, const Axes& kept, std::string_view function) {
  const auto axes = kept_axes(kept, x.rank(), function);
  const auto order = kept_first(axes, x.rank());
  const Shape shape = range_shape(x.shape(), axes), grid{numel(shape), x.numel() / numel(shape)};
  // Kept axes come first: the rows are x itself.
  if (std::ranges::is_sorted(order)) return {x.to(Layout::row_major).reshape(grid), shape};
  Shape moved;
  for (const int axis : order) moved.push_back(x.dim(axis));
  Tensor out = Tensor::empty(moved, DType::f32, x.device());
  run(x.device(), &Kernels::permute, x, order, out);
  return {out.reshape(grid), shape};
}

std::string not_finite_text(bool nan, std::string_view function) {
  return fmt::format("[{}] the batch has {}: calibrate with finite values", function,
                     nan ? "a NaN" : "an infinity");
}

void check_finite(float amax, std::string_view function) {
  if (!std::isfinite(amax)) throw NumericError(not_finite_text(std::isnan(amax), function));
}

Tensor loaded_amax(const Tensor& saved, std::string_view function) {
  FQ_CHECK(saved.dtype() == DType::f32, function, "the saved amax is {}: it must be f32",
           name(saved.dtype()));
  const auto* v = saved.data<float>();
  for (std::int64_t i = 0; i < saved.numel(); ++i)
    FQ_CHECK(v[i] >= 0 && std::isfinite(v[i]), function,
             "the saved amax has {}: it must be finite and not negative", v[i]);
  return saved.clone();
}

}  // namespace fq::detail
