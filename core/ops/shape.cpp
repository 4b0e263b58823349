#include "fakequant/core/ops/shape.h"

#include "fakequant/core/ops/detail/move.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::ops {
namespace {

/// `shape` with its -1 filled in.
Shape resolved(std::string_view op, const Shape& from, Shape shape) {
  std::int64_t* open = nullptr;
  std::int64_t known = 1;
  for (auto& size : shape) {
    FQ_CHECK(size >= 0 || (size == -1 && open == nullptr), op,
             "{} is no shape: sizes are 0 or more, one may be -1", to_string(shape));
    if (size == -1)
      open = &size;
    else
      known *= size;
  }
  if (open != nullptr) *open = known > 0 ? numel(from) / known : 0;
  FQ_CHECK(numel(shape) == numel(from), op, "{} has {} elements, {} has {}: the counts must agree",
           to_string(from), numel(from), to_string(shape), numel(shape));
  return shape;
}

constexpr std::string_view kSlice = "slice";

constexpr std::string_view kTranspose = "transpose";

/// The permutation with every axis from the front. Throws when it is none.
std::vector<int> checked(const std::vector<int>& axes, int rank) {
  FQ_CHECK(static_cast<int>(axes.size()) == rank, kTranspose,
           "{} axes are given, the input has {}: name each once", axes.size(), rank);
  std::vector<int> out;
  std::vector<bool> seen(axes.size(), false);
  for (const int axis : axes) {
    const int at = normalize_axis(axis, rank, kTranspose);
    FQ_CHECK(!seen[static_cast<std::size_t>(at)], kTranspose, "axis {} is named twice: name each once", axis);
    seen[static_cast<std::size_t>(at)] = true;
    out.push_back(at);
  }
  return out;
}

}  // namespace

Variable reshape(const Variable& x, Shape shape) {
  FQ_CHECK(x.defined(), "reshape", "the input is undefined");
  auto attributes = detail::traced([&] { return Attributes{{"shape", shape}}; });
  const Shape to = resolved("reshape", x.shape(), std::move(shape));
  return detail::record_move("reshape", x, ReshapeMove{to}, std::move(attributes));
}

Variable flatten(const Variable& x, int start_axis) {
  FQ_CHECK(x.defined() && x.rank() > 0, "flatten", "the input has no axes");
  const Shape from = x.shape();
  const int start = normalize_axis(start_axis, x.rank(), "flatten");
  Shape to(from.begin(), from.begin() + start);
  to.push_back(numel(Shape(from.begin() + start, from.end())));
  auto attributes = detail::traced([&] { return Attributes{{"start_axis", std::int64_t{start}}}; });
  return detail::record_move("flatten", x, ReshapeMove{std::move(to)}, std::move(attributes));
}

Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  FQ_CHECK(x.defined(), kSlice, "the input is undefined");
  const int at = normalize_axis(axis, x.rank(), kSlice);
  const std::int64_t size = x.dim(at), from = begin < 0 ? begin + size : begin,
                     to = end < 0 ? end + size : end;
  FQ_CHECK(0 <= from && from <= to && to <= size, kSlice, "{} to {} is not within axis {} of {}", begin, end,
           at, to_string(x.shape()));
  FQ_CHECK(step >= 1, kSlice, "the step is {}: it must be 1 or more", step);
  auto attributes = detail::traced([&] {
    return Attributes{{"axis", std::int64_t{at}}, {"begin", from}, {"end", to}, {"step", step}};
  });
  if (step == 1) return detail::record_move(kSlice, x, CutMove{at, from, to}, std::move(attributes));
  TakeMove move{at, {}};
  for (std::int64_t i = from; i < to; i += step) move.from.push_back(i);
  return detail::record_move(kSlice, x, move, std::move(attributes));
}

std::vector<Variable> split(const Variable& x, const std::vector<std::int64_t>& sizes, int axis) {
  FQ_CHECK(x.defined(), "split", "the input is undefined");
  const int at = normalize_axis(axis, x.rank(), "split");
  std::vector<Variable> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    FQ_CHECK(size >= 0 && size <= x.dim(at) - begin, "split", "parts of {} do not fit axis {} of {}",
             to_string(sizes), at, to_string(x.shape()));
    parts.push_back(slice(x, at, begin, begin + size));
    begin += size;
  }
  FQ_CHECK(begin == x.dim(at), "split", "parts of {} have {} elements of the {} on axis {}", to_string(sizes),
           begin, x.dim(at), at);
  return parts;
}

Variable transpose(const Variable& x, const std::vector<int>& axes) {
  FQ_CHECK(x.defined(), kTranspose, "the input is undefined");
  const PermuteMove move{checked(axes, x.rank())};
  auto attributes = detail::traced([&] {
    return Attributes{{"axes", std::vector<std::int64_t>(move.axes.begin(), move.axes.end())}};
  });
  return detail::record_move(kTranspose, x, move, std::move(attributes));
}

}  // namespace fq::ops
