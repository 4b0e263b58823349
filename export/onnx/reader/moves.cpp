#include <algorithm>
#include <functional>
#include <numeric>

#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

using Numbers = std::vector<std::int64_t>;

void check_not_samples(const OpImport& op, const ImportValue& x, int axis) {
  op.check(axis != batch_axis(x.shape), "it splits samples: its axis {} is the batch", axis);
}

ImportValue select_positions(const OpImport& op, const ImportValue& x, int axis, const Numbers& picks,
                             const std::string& suffix) {
  const std::int64_t size = x.shape[static_cast<std::size_t>(axis)];
  // All positions in ascending order: nothing to do, also for the batch.
  if (std::ssize(picks) == size && std::ranges::adjacent_find(picks, std::greater_equal{}) == picks.end())
    return x;
  check_not_samples(op, x, axis);
  if (picks.empty()) {
    ImportValue none{.node = {}, .shape = x.shape, .constant = {}};
    none.shape[static_cast<std::size_t>(axis)] = 0;
    return none;
  }
  // A regular distance is a slice, which exporters write without a list of indices.
  const std::int64_t step = picks.size() > 1 ? picks[1] - picks[0] : 1;
  const auto regular = [&](std::size_t i) {
    return picks[i] == picks[0] + static_cast<std::int64_t>(i) * step;
  };
  bool even = step > 0;
  for (std::size_t i = 0; i < picks.size() && even; ++i) even = regular(i);
  if (!even) return op.layer("index_select", {{"axis", axis}, {"indices", picks}}, {x}, {}, suffix);
  NodeOptions options{{"axis", axis}, {"begin", picks.front()}, {"end", picks.back() + 1}};
  if (step != 1) options["step"] = step;
  return op.layer("slice", options, {x}, {}, suffix);
}

Shape without(Shape shape, int axis) {
  shape.erase(shape.begin() + axis);
  return shape;
}

}  // namespace

ImportValue slice(const OpImport& op) {
  ImportValue x = op.value();
  const auto starts = op.list("starts", 1), ends = op.list("ends", 2),
             steps = op.has_input(4) ? op.list("steps", 4) : Numbers{};
  auto given = op.list("axes", 3);
  if (given.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) given.push_back(static_cast<std::int64_t>(i));
  const auto axes = normalized_axes(op, given, value_rank(x));
  op.check(starts.size() == axes.size() && ends.size() == axes.size() &&
               (steps.empty() || steps.size() == axes.size()),
           "it has {} starts, {} ends and {} axes", starts.size(), ends.size(), axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t size = x.shape[static_cast<std::size_t>(axes[i])];
    // PyTorch slices the batch from 0 to the largest integer.
    if (axes[i] == batch_axis(x.shape) && starts[i] == 0 && ends[i] >= size) continue;
    const auto picks = slice_picks(op, starts[i], ends[i], steps.empty() ? 1 : steps[i], size);
    x = select_positions(op, x, axes[i], picks, i + 1 < axes.size() ? "slice" : "");
  }
  return x;
}

ImportValue split(const OpImport& op) {
  const ImportValue& x = op.value();
  const int axis = normalized_axes(op, {op.integer("axis", 0, -8, 8)}, value_rank(x))[0];
  const auto parts = static_cast<std::int64_t>(op.node().outputs.size());
  check_parts(op, parts);
  const std::int64_t size = x.shape[static_cast<std::size_t>(axis)], each = (size + parts - 1) / parts;
  Numbers sizes = op.list("split", 1);
  if (sizes.empty())
    for (std::int64_t i = 0; i < parts; ++i) sizes.push_back(std::min(each, size - i * each));
  if (parts > 1) check_not_samples(op, x, axis);
  op.check(std::ssize(sizes) == parts && std::ranges::min(sizes) >= 0 &&
               std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == size,
           "its parts {} do not sum to the axis size {}", to_string(sizes), size);
  std::int64_t begin = 0;
  ImportValue first;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Numbers picks(static_cast<std::size_t>(sizes[i]));
    std::iota(picks.begin(), picks.end(), begin);
    begin += sizes[i];
    const ImportValue part = select_positions(op, x, axis, picks, "part" + std::to_string(i));
    // The builder returns the first output and sets the others.
    i == 0 ? void(first = part) : op.give(i, part);
  }
  return first;
}

/// Looks up rows of a table, or takes elements at constant indices.
ImportValue gather(const OpImport& op) {
  if (!op.is_constant(1)) return embedding(op);
  const ImportValue& x = op.value();
  const int axis = normalized_axes(op, {op.integer("axis", 0, -8, 8)}, value_rank(x))[0];
  const Tensor& indices = op.constant(1);
  const std::int64_t size = x.shape[static_cast<std::size_t>(axis)];
  Numbers picks = integer_list(op, indices.reshape({-1}));
  for (auto& pick : picks) {
    if (pick < 0) pick += size;
    op.check(pick >= 0 && pick < size, "its index is outside of an axis of {}", size);
  }
  // A single index removes the axis, and indices of rank 2 replace it by two axes.
  const ImportValue y = select_positions(op, x, axis, picks, indices.rank() == 1 ? "" : "slice");
  if (indices.rank() == 1) return y;
  check_not_samples(op, x, axis);
  Shape shape = without(y.shape, axis);
  shape.insert(shape.begin() + axis, indices.shape().begin(), indices.shape().end());
  return op.reshaped(y, shape, {});
}

/// Takes elements at constant indices of the first axes. PyTorch writes indexing with lists this way.
ImportValue gather_nd(const OpImport& op) {
  const ImportValue& x = op.value();
  if (!op.is_constant(1)) op.unsupported("by computed indices");
  op.check(op.integer("batch_dims", 0, 0, 8) == 0, "its batch_dims are not 0");
  const Shape places = op.constant(1).shape();
  op.check(!places.empty() && places.back() >= 1 && places.back() <= value_rank(x),
           "its indices are {}, its input has {} axes", op.constant(1).describe(), value_rank(x));
  const auto axes = static_cast<std::size_t>(places.back());
  for (std::size_t i = 0; i < axes; ++i) check_not_samples(op, x, static_cast<int>(i));
  // The indexed axes are merged into one, and each row of indices becomes one position of it.
  const Numbers given = integer_list(op, op.constant(1).reshape({-1}));
  Numbers picks;
  for (std::size_t i = 0; i < given.size(); i += axes) {
    std::int64_t pick = 0;
    for (std::size_t k = 0; k < axes; ++k) {
      const std::int64_t place = given[i + k] < 0 ? given[i + k] + x.shape[k] : given[i + k];
      op.check(place >= 0 && place < x.shape[k], "an index is outside of an axis of {}", x.shape[k]);
      pick = pick * x.shape[k] + place;
    }
    picks.push_back(pick);
  }
  const Shape rest(x.shape.begin() + static_cast<std::ptrdiff_t>(axes), x.shape.end());
  Shape rows = rest, out(places.begin(), places.end() - 1);
  rows.insert(rows.begin(),
              numel(Shape(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(axes))));
  out.insert(out.end(), rest.begin(), rest.end());
  return op.reshaped(select_positions(op, op.reshaped(x, rows, "rows"), 0, picks, "picked"), out, {});
}

ImportValue pad(const OpImport& op) {
  const ImportValue& x = op.value();
  const auto rank = x.shape.size();
  Numbers given = op.list("pads", 1);
  if (op.has_input(3)) {  // only for these axes
    const auto axes = normalized_axes(op, integer_list(op, op.constant(3)), value_rank(x));
    op.check(given.size() == 2 * axes.size(), "it has {} pads of {} axes", given.size(), axes.size());
    Numbers all(2 * rank, 0);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      all[static_cast<std::size_t>(axes[i])] = given[i];
      all[static_cast<std::size_t>(axes[i]) + rank] = given[i + axes.size()];
    }
    given = all;
  }
  op.check(given.size() == 2 * rank, "it has {} pads of {} axes", given.size(), rank);
  if (std::ranges::all_of(given, [](auto size) { return size == 0; })) return x;
  for (const auto size : given)
    op.check(size <= kLargestPad, "it pads by {}: up to {} are supported", size, kLargestPad);
  // Layers "pad" have no pads for the batch.
  op.check(given[0] == 0 && given[rank] == 0, "it adds samples: its pads of the batch are {} and {}",
           given[0], given[rank]);
  const auto mode = op.text("mode", "constant");
  const std::string ours = mode == "edge" ? "replicate" : mode == "wrap" ? "circular" : mode;
  const double value = op.has_input(2) ? op.scalar(2) : op.number("value", 0);
  NodeOptions options{
      {"before", Numbers(given.begin() + 1, given.begin() + static_cast<std::ptrdiff_t>(rank))},
      {"after", Numbers(given.begin() + static_cast<std::ptrdiff_t>(rank) + 1, given.end())}};
  if (ours != "constant") options["mode"] = ours;
  if (ours == "constant" && value != 0) options["value"] = std::clamp(value, -1e30, 1e30);
  return op.layer("pad", options, {x});
}

namespace {

/// Whether channels come before the rows and columns of a block (CRD), or after them (DCR).
bool is_column_row_depth(const OpImport& op) {
  const auto mode = op.text("mode", "DCR");
  op.check(mode == "DCR" || mode == "CRD", "attribute 'mode' is '{}': DCR and CRD are supported", mode);
  return mode == "CRD";
}

}  // namespace

ImportValue depth_to_space(const OpImport& op) {
  const ImportValue& x = op.value();
  const auto r = op.integer("blocksize", 1, 1, 1024);
  op.check(x.shape.size() == 4 && x.shape[1] % (r * r) == 0, "its input is {}", to_string(x.shape));
  if (is_column_row_depth(op)) return op.layer("pixel_shuffle", {{"factor", r}}, {x});
  const std::int64_t n = x.shape[0], c = x.shape[1] / (r * r), h = x.shape[2], w = x.shape[3];
  // DCR: the rows and columns of a block come before the channels.
  const auto squares = op.reshaped(x, {n, r, r, c, h, w}, "squares");
  const auto transposed =
      op.layer("transpose", {{"axes", Shape{0, 3, 4, 1, 5, 2}}}, {squares}, {}, "transpose");
  return op.reshaped(transposed, {n, c, h * r, w * r}, {});
}

ImportValue space_to_depth(const OpImport& op) {
  const ImportValue& x = op.value();
  const auto r = op.integer("blocksize", 1, 1, 1024);
  op.check(x.shape.size() == 4 && x.shape[2] % r == 0 && x.shape[3] % r == 0, "its input is {}",
           to_string(x.shape));
  if (is_column_row_depth(op)) return op.layer("pixel_unshuffle", {{"factor", r}}, {x});
  const std::int64_t n = x.shape[0], c = x.shape[1], h = x.shape[2] / r, w = x.shape[3] / r;
  // DCR, the inverse of the above.
  const auto squares = op.reshaped(x, {n, c, h, r, w, r}, "squares");
  const auto transposed =
      op.layer("transpose", {{"axes", Shape{0, 3, 5, 1, 2, 4}}}, {squares}, {}, "transpose");
  return op.reshaped(transposed, {n, c * r * r, h, w}, {});
}

}  // namespace fq::detail::onnx_ops
