#include "fakequant/core/ops/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/moves.h"
#include "fakequant/core/ops/detail/operator.h"

namespace fq::ops {
namespace {

/// Returns `shape` with its -1 replaced.
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
  // With a size of 0 any number would fit for -1; it becomes 0, and the check below compares the counts.
  if (open != nullptr) *open = known > 0 ? numel(from) / known : 0;
  FQ_CHECK(numel(shape) == numel(from), op, "{} has {} elements, {} has {}: the counts must agree",
           to_string(from), numel(from), to_string(shape), numel(shape));
  return shape;
}

constexpr std::string_view kSlice = "slice";

constexpr std::string_view kTranspose = "transpose";

/// Returns the permutation with axes counted from the front. Throws ArgumentError if it is none.
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
  // A cut copies runs of memory, a strided slice gathers single indices.
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

namespace {

constexpr std::string_view kConcat = "concat";

/// Returns the sizes along the axis. Throws ArgumentError if the parts differ on other axes.
std::vector<std::int64_t> sizes_along(const std::vector<Variable>& parts, int axis) {
  const Shape first = parts[0].shape();
  std::vector<std::int64_t> sizes;
  for (const auto& part : parts) {
    Shape shape = part.shape();
    FQ_CHECK(shape.size() == first.size(), kConcat, "{} and {} have different ranks", to_string(first),
             to_string(shape));
    auto& size = shape[static_cast<std::size_t>(axis)];
    sizes.push_back(size);
    size = first[static_cast<std::size_t>(axis)];
    FQ_CHECK(shape == first, kConcat, "{} and {} differ on an axis other than {}", to_string(part.shape()),
             to_string(first), axis);
  }
  return sizes;
}

// The gradient of a concatenation is cut at the boundaries of the parts.
Backward split(std::vector<std::int64_t> sizes, int axis) {
  return [sizes = std::move(sizes), axis](const Tensor& dy) {
    std::vector<Tensor> out;
    std::int64_t begin = 0;
    for (const auto size : sizes) {
      out.push_back(detail::cut(dy, axis, begin, begin + size));
      begin += size;
    }
    return out;
  };
}

/// Returns whether all parts are codes of one grid. Codes of different grids have no common grid: such parts
/// are joined as floats.
bool joinable(const std::vector<Variable>& parts) {
  return std::ranges::all_of(parts, [&](const Variable& part) {
    return part.quantized() != nullptr && detail::is_movable(*part.quantized()) &&
           same_grid(part.quantized()->grid, parts[0].quantized()->grid);
  });
}

QuantizedTensor joined_codes(const std::vector<Variable>& parts, int axis) {
  std::vector<Tensor> codes;
  for (const auto& part : parts) codes.push_back(part.quantized()->codes);
  return detail::with_codes(*parts[0].quantized(), detail::join(codes, axis));
}

bool all_sums(const std::vector<Variable>& parts) {
  return std::ranges::all_of(parts, [](const Variable& part) {
    return part.accumulator() != nullptr && !part.accumulator()->is_deferred();
  });
}

/// Concatenates sums. A ReLU that is pending on every part is pending on the result.
Accumulator joined_sums(const std::vector<Variable>& parts, int axis) {
  const bool relu = std::ranges::all_of(parts, [](const Variable& part) { return part.accumulator()->relu; });
  AccumulatorConcat out{{}, axis};
  for (const auto& part : parts) {
    out.parts.push_back(*part.accumulator());
    out.parts.back().relu = !relu && part.accumulator()->relu;
  }
  return {std::move(out), relu};
}

}  // namespace

Variable concat(const std::vector<Variable>& parts, int axis) {
  FQ_CHECK(!parts.empty() && std::ranges::all_of(parts, &Variable::defined), kConcat,
           "{} inputs are given: use one or more, all defined", parts.size());
  const int at = normalize_axis(axis, parts[0].rank(), kConcat);
  auto backward = split(sizes_along(parts, at), at);
  auto attributes = detail::traced([&] { return Attributes{{"axis", std::int64_t{at}}}; });
  // Sums of several layers wait for the one grid of the reader (AccumulatorConcat), which all parts then
  // share without requantization.
  if (all_sums(parts))
    return detail::record(kConcat, joined_sums(parts, at), parts, std::move(backward), std::move(attributes));
  if (joinable(parts))
    return detail::record(kConcat, joined_codes(parts, at), parts, std::move(backward),
                          std::move(attributes));
  std::vector<Variable> inputs;
  std::vector<Tensor> tensors;
  for (const auto& part : parts) {
    auto floats =
        tensors.empty() ? detail::floats(part, kConcat) : detail::matching_floats(part, tensors[0], kConcat);
    inputs.push_back(floats.variable);
    tensors.push_back(floats.tensor);
  }
  return detail::record(kConcat, detail::join(tensors, at), std::move(inputs), std::move(backward),
                        std::move(attributes));
}

namespace {

Shape checked(const Variable& x, std::int64_t factor, std::string_view op) {
  FQ_CHECK(x.defined() && x.rank() == 4, op, "the input is {}: use [N, C, H, W]",
           x.defined() ? to_string(x.shape()) : "undefined");
  FQ_CHECK(factor >= 1 && factor < (1 << 15), op, "the factor is {}: use 1 or more", factor);
  return x.shape();
}

Attributes factor_attributes(std::int64_t factor) {
  return detail::traced([&] { return Attributes{{"factor", factor}}; });
}

}  // namespace

Variable pixel_shuffle(const Variable& x, std::int64_t r) {
  const Shape s = checked(x, r, "pixel_shuffle");
  FQ_CHECK(s[1] % (r * r) == 0, "pixel_shuffle", "{} has {} channels: they must be a multiple of {}",
           to_string(s), s[1], r * r);
  return detail::composite("pixel_shuffle", {x}, factor_attributes(r), [&] {
    // x: [N, C r^2, H, W] -> y: [N, C, H r, W r] (Shi et al., arXiv:1609.05158).
    const Variable squares = reshape(x, {s[0], s[1] / (r * r), r, r, s[2], s[3]});
    return reshape(transpose(squares, {0, 1, 4, 2, 5, 3}), {s[0], s[1] / (r * r), s[2] * r, s[3] * r});
  });
}

Variable pixel_unshuffle(const Variable& x, std::int64_t r) {
  const Shape s = checked(x, r, "pixel_unshuffle");
  FQ_CHECK(s[2] % r == 0 && s[3] % r == 0, "pixel_unshuffle", "{} is no image of squares of {} pixels",
           to_string(s), r);
  return detail::composite("pixel_unshuffle", {x}, factor_attributes(r), [&] {
    const Variable squares = reshape(x, {s[0], s[1], s[2] / r, r, s[3] / r, r});
    return reshape(transpose(squares, {0, 1, 3, 5, 2, 4}), {s[0], s[1] * r * r, s[2] / r, s[3] / r});
  });
}

namespace {

constexpr std::string_view kInputPart = "input_part";

/// Returns the value to record and its floats; integers become f32.
detail::Floats numbers(const Variable& x) {
  const auto* tensor = std::get_if<Tensor>(&x.value());
  const bool whole = tensor != nullptr && !is_floating(tensor->dtype()) &&
                     !is_storage_only(tensor->dtype()) && tensor->dtype() != DType::u1;
  // Files may name integer types, for example for token ids. f32 is exact up to 2^24.
  return whole ? detail::Floats{x, tensor->to(DType::f32)} : detail::floats(x, kInputPart);
}

/// Returns whether the part fits into rows of `row` elements. Its sizes may have any value.
bool fits(const InputPart& part, std::int64_t row) {
  if (part.begin < 0 || part.begin >= row) return false;
  std::int64_t left = row - part.begin;
  for (const auto size : part.shape) left = size >= 1 ? left / size : 0;
  return left >= 1;
}

void check(const Variable& x, const InputPart& part) {
  FQ_CHECK(x.defined() && x.rank() == 2, kInputPart, "the input is {}: use rows [N, K]",
           x.defined() ? to_string(x.shape()) : "undefined");
  FQ_CHECK(fits(part, x.dim(1)), kInputPart, "{} from element {} on is not within rows of {}",
           to_string(part.shape), part.begin, x.dim(1));
  FQ_CHECK(std::ranges::count(input_part_types(), part.type) == 1, kInputPart,
           "the type '{}': it is one of {}", part.type, fmt::join(input_part_types(), ", "));
}

}  // namespace

const std::vector<std::string>& input_part_types() {
  static const std::vector<std::string> types{"f32", "f64", "f16", "i8", "u8", "i16", "i32", "i64", "bool"};
  return types;
}

Variable input_part(const Variable& x, const InputPart& part) {
  check(x, part);
  const std::int64_t end = part.begin + numel(part.shape);
  Shape shape{x.dim(0)};
  shape.insert(shape.end(), part.shape.begin(), part.shape.end());
  auto attributes = detail::traced([&] {
    return Attributes{{"begin", part.begin}, {"shape", part.shape}, {"name", part.name}, {"type", part.type}};
  });
  const auto read = numbers(x);
  const CutMove cut{1, part.begin, end};
  const auto backward = [cut, from = x.shape(), own = Shape{x.dim(0), end - part.begin}](const Tensor& dy) {
    return std::vector<Tensor>{moved_back(moved_back(dy, ReshapeMove{own}, own), cut, from)};
  };
  return detail::record(kInputPart, moved(moved(read.tensor, cut), ReshapeMove{shape}), {read.variable},
                        backward, std::move(attributes));
}

}  // namespace fq::ops
