#include <algorithm>

#include "fakequant/core/ops/detail/operator.h"
#include "fakequant/core/ops/elementwise.h"
#include "fakequant/core/ops/shape.h"

namespace fq::ops {
namespace {

using Sizes = std::array<std::int64_t, 2>;

/// Returns the source index of element i of an axis of `size`; -1 for a constant. One reflection or wrap is
/// enough: `check_sizes` limits the padding to the size of the axis.
std::int64_t reflected(std::int64_t i, std::int64_t size, PadMode mode) {
  if (0 <= i && i < size) return i;
  switch (mode) {
    case PadMode::reflect:
      return i < 0 ? -i : 2 * (size - 1) - i;
    case PadMode::replicate:
      return i < 0 ? 0 : size - 1;
    case PadMode::circular:
      return i < 0 ? i + size : i - size;
    default:
      return -1;
  }
}

void check_sizes(const Sizes& sizes, std::int64_t size, PadMode mode) {
  // Limits the index list of the move, which has one entry for each element of the axis.
  constexpr std::int64_t most = std::int64_t{1} << 32;
  const std::int64_t longest = std::max(sizes[0], sizes[1]);
  FQ_CHECK(std::min(sizes[0], sizes[1]) >= -size && size + sizes[0] + sizes[1] >= 0 && longest < most, "pad",
           "an axis of {} cannot be padded by {} and {}", size, sizes[0], sizes[1]);
  const std::int64_t allowed = mode == PadMode::reflect ? size - 1 : mode == PadMode::circular ? size : most;
  FQ_CHECK(longest <= std::max<std::int64_t>(allowed, 0), "pad",
           "an axis of {} cannot be padded by {} elements of its own: use {} or less", size, longest,
           std::max<std::int64_t>(allowed, 0));
  FQ_CHECK(mode != PadMode::replicate || size > 0 || longest <= 0, "pad",
           "an axis without elements has no border to repeat");
}

// A negative size starts or ends the index list inside the axis, which crops it.
TakeMove pad_move(int axis, std::int64_t size, const Sizes& sizes, PadMode mode) {
  check_sizes(sizes, size, mode);
  TakeMove move{axis, {}};
  for (std::int64_t i = -sizes[0]; i < size + sizes[1]; ++i) move.from.push_back(reflected(i, size, mode));
  return move;
}

Variable padded(const Variable& x, const std::vector<Sizes>& sizes, PadMode mode) {
  Variable y = x;
  const int first = x.rank() - static_cast<int>(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const int axis = first + static_cast<int>(i);
    if (sizes[i] == Sizes{}) continue;
    y = detail::record_move("pad", y, pad_move(axis, y.dim(axis), sizes[i], mode), {});
  }
  return y;
}

/// Returns zeros where x is, and `value` around it.
Tensor frame(const Variable& x, const Variable& y, const std::vector<Sizes>& sizes, double value) {
  // Pads ones with zeros first, then inverts: the frame needs no index computation of its own.
  const NoGrad constant;
  const Tensor floats = y.tensor();
  const Variable ones = Tensor::full(x.shape(), 1.0, floats.dtype(), y.device(), x.layout());
  const Tensor inside = padded(ones, sizes, PadMode::constant).tensor();
  Tensor out = detail::empty_like(inside);
  const Tensor constants = Tensor::full({}, value, inside.dtype(), inside.device());
  detail::run(out.device(), &detail::Kernels::combine, constants, inside, detail::KeepUnless{}, out);
  return out;
}

}  // namespace

const char* name(PadMode mode) noexcept {
  constexpr const char* names[] = {"constant", "reflect", "replicate", "circular"};
  return names[static_cast<int>(mode)];
}

Variable index_select(const Variable& x, int axis, const std::vector<std::int64_t>& indices) {
  constexpr std::string_view op = "index_select";
  FQ_CHECK(x.defined(), op, "the input is undefined");
  const int at = normalize_axis(axis, x.rank(), op);
  TakeMove move{at, indices};
  for (auto& index : move.from) {
    FQ_CHECK(index >= -x.dim(at) && index < x.dim(at), op, "index {} is not within axis {} of {}", index, at,
             to_string(x.shape()));
    if (index < 0) index += x.dim(at);
  }
  auto attributes = detail::traced([&] {
    return Attributes{{"axis", std::int64_t{at}}, {"indices", move.from}};
  });
  return detail::record_move(op, x, move, std::move(attributes));
}

Variable expand(const Variable& x, const Shape& shape) {
  constexpr std::string_view op = "expand";
  FQ_CHECK(x.defined() && shape.size() >= x.shape().size(), op, "{} cannot be expanded to {}",
           x.defined() ? to_string(x.shape()) : "an undefined input", to_string(shape));
  Shape from(shape.size() - x.shape().size(), 1);
  const Shape own = x.shape();
  from.insert(from.end(), own.begin(), own.end());
  Shape to = shape;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == -1) to[i] = from[i];
    FQ_CHECK(to[i] >= 0 && (to[i] == from[i] || from[i] == 1), op, "{} cannot be expanded to {}",
             to_string(own), to_string(shape));
  }
  auto attributes = detail::traced([&] { return Attributes{{"shape", shape}}; });
  return detail::composite(op, {x}, std::move(attributes), [&] {
    Variable y = from == own ? x : reshape(x, from);
    for (std::size_t i = 0; i < to.size(); ++i)
      if (to[i] != from[i])
        // Index 0 repeated. The gradient of this move is the sum over the copies.
        y = detail::record_move(
            op, y,
            TakeMove{static_cast<int>(i), std::vector<std::int64_t>(static_cast<std::size_t>(to[i]), 0)}, {});
    // A trace needs an output that is not the input itself.
    return y.node() == x.node() ? reshape(x, to) : y;
  });
}

Variable pad(const Variable& x, const std::vector<Sizes>& sizes, PadMode mode, double value) {
  FQ_CHECK(x.defined() && sizes.size() <= x.shape().size(), "pad",
           "{} pairs of sizes are given for {}: use one for each of the last axes", sizes.size(),
           x.defined() ? to_string(x.shape()) : "an undefined input");
  const bool constant = mode == PadMode::constant && value != 0.0;
  auto attributes = detail::traced([&] {
    std::vector<std::int64_t> before, after;
    for (const auto& each : sizes) {
      before.push_back(each[0]);
      after.push_back(each[1]);
    }
    return Attributes{
        {"before", before}, {"after", after}, {"mode", std::string(name(mode))}, {"value", value}};
  });
  const Variable read = constant ? detail::floats(x, "pad").variable : x;
  // Padding with zeros moves codes, because code 0 is 0 on every symmetric grid. Another constant may not be
  // on the grid, so it is a sum of floats.
  return detail::composite(constant ? "pad_constant" : "pad", {read}, std::move(attributes), [&] {
    const Variable y = padded(read, sizes, mode);
    if (constant) return add(y, frame(read, y, sizes, value));
    return y.node() == read.node() ? reshape(read, read.shape()) : y;
  });
}

Variable stack(const std::vector<Variable>& parts, int axis) {
  FQ_CHECK(!parts.empty() && std::ranges::all_of(parts, &Variable::defined), "stack",
           "{} inputs are given: use one or more, all defined", parts.size());
  const int at = normalize_axis(axis, parts[0].rank() + 1, "stack");
  std::vector<Variable> rows;
  for (const auto& part : parts) {
    FQ_CHECK(part.shape() == parts[0].shape(), "stack", "{} and {} are not of one shape",
             to_string(part.shape()), to_string(parts[0].shape()));
    Shape shape = part.shape();
    shape.insert(shape.begin() + at, 1);
    rows.push_back(reshape(part, shape));
  }
  return concat(rows, at);
}

}  // namespace fq::ops
