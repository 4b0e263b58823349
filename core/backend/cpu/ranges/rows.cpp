#include "fakequant/core/backend/cpu/ranges/rows.h"

#include <algorithm>

#include "fakequant/core/backend/kernels.h"
#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/threads.h"

namespace fq::cpu {
namespace {

constexpr std::int64_t kPart = 4096, kParts = 4096;

/// The kept axes, then the others in their order.
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
           "an axis is kept twice: name each kept axis once");
  if (static_cast<int>(axes.size()) == rank) axes.clear();
  return axes;
}

Shape range_shape(const Shape& shape, const std::vector<int>& axes) {
  Shape out(shape.size(), 1);
  for (const int axis : axes) out[static_cast<std::size_t>(axis)] = shape[static_cast<std::size_t>(axis)];
  return numel(out) == 1 ? Shape{} : out;
}

Rows rows(const Tensor& x, const Axes& kept, std::string_view function) {
  const auto axes = kept_axes(kept, x.rank(), function);
  const auto order = kept_first(axes, x.rank());
  const Shape shape = range_shape(x.shape(), axes), grid{numel(shape), x.numel() / numel(shape)};
  if (std::ranges::is_sorted(order)) return {x.to(Layout::row_major).reshape(grid), shape};
  Shape moved;
  for (const int axis : order) moved.push_back(x.dim(axis));
  Tensor out = Tensor::empty(moved, DType::f32, x.device());
  detail::run(x.device(), &detail::Kernels::permute, x, order, out);
  return {out.reshape(grid), shape};
}

void add_row_sums(const Rows& rows, std::int64_t width, double* sums, const RowPart& part) {
  const std::int64_t length = rows.length(), per_row = (length + kPart - 1) / kPart;
  const std::int64_t parts = rows.count() * per_row;
  std::vector<double> own(static_cast<std::size_t>(std::min(parts, kParts) * width));
  detail::FirstError error;
  for (std::int64_t first = 0; first < parts; first += kParts) {
    const std::int64_t count = std::min(kParts, parts - first);
    std::ranges::fill(own, 0.0);
#pragma omp parallel for schedule(static) if (rows.values.numel() > kPart)
    for (std::int64_t k = 0; k < count; ++k) {
      const std::int64_t r = (first + k) / per_row, begin = (first + k) % per_row * kPart;
      error.keep(
          [&] { part(r, rows.row(r) + begin, std::min(kPart, length - begin), own.data() + k * width); });
    }
    error.rethrow();
    for (std::int64_t k = 0; k < count; ++k)
      for (std::int64_t i = 0; i < width; ++i)
        sums[(first + k) / per_row * width + i] += own[static_cast<std::size_t>(k * width + i)];
  }
}

}  // namespace fq::cpu
