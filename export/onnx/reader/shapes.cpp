#include <algorithm>
#include <set>

#include "fakequant/export/onnx/reader/element_types.h"
#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

Shape sample(const Shape& shape) { return {shape.begin() + 1, shape.end()}; }

/// Replaces the fixed batch of a file in a target shape by the symbolic batch, at the same position in the
/// order of the elements.
void place_batch(const OpImport& op, const Shape& from, Shape& to) {
  const int samples = batch_axis(from);
  if (samples < 0) return;
  // A reshape keeps the order of the elements, so the sizes before the batch have the same product.
  const std::int64_t before = numel(Shape(from.begin(), from.begin() + samples));
  const std::int64_t batch = sample_elements(from) == numel(to) ? 1 : op.batch();
  if (batch < 1) return;
  std::int64_t passed = 1;
  for (auto& size : to) {
    if (passed == before && size % batch == 0 && size > 0 && (size != 1 || batch == 1)) {
      size = size / batch * kSymbolicBatch;
      return;
    }
    passed *= size;
  }
}

/// Resolves a target shape: 0 keeps a size, -1 follows from the other sizes.
Shape target_shape(const OpImport& op, const Shape& from) {
  Shape to = op.list("shape", 1);
  op.check(!to.empty() && to.size() <= 8, "it gives {} axes: from 1 to 8 are supported", to.size());
  const bool zeros = op.integer("allowzero", 0, 0, 1) == 1;
  for (std::size_t i = 0; i < to.size(); ++i) {
    op.check(to[i] >= -1, "its shape has a size of {}", to[i]);
    if (to[i] != 0 || zeros) continue;
    op.check(i < from.size(), "it keeps axis {} of {}", i, from.size());
    to[i] = from[i];
  }
  // The target of a file with a fixed batch contains that batch, which becomes symbolic.
  const auto open_before = std::ranges::count(to, -1);
  if (open_before == 0 && batch_axis(to) < 0) place_batch(op, from, to);
  if (open_before == 1 && to[0] != -1 && op.is_batch(to[0]) && batch_axis(from) == 0 &&
      from[0] == kSymbolicBatch)
    to[0] = kSymbolicBatch;
  const auto open = std::ranges::count(to, -1);
  op.check(open <= 1, "its shape has several sizes of -1");
  if (open == 0) return to;
  auto& inferred = *std::ranges::find(to, -1);
  inferred = 1;
  const std::int64_t rest = numel(to), all = numel(from);
  op.check(rest > 0 && all % rest == 0, "{} for one sample cannot become its shape", to_string(sample(from)));
  inferred = all / rest;
  return to;
}

}  // namespace

ImportValue same(const OpImport& op) { return op.value(); }

ImportValue cast(const OpImport& op) { return converted(op, op.value(), op.type(), cast_type(op)); }

ImportValue shape(const OpImport& op) { return {{}, {}, shape_tensor(op, op.input(0).shape)}; }

ImportValue flatten(const OpImport& op) {
  const ImportValue& x = op.value();
  const auto rank = static_cast<std::int64_t>(x.shape.size()), given = op.integer("axis", 1, -8, 8);
  op.check(given >= -rank && given <= rank, "axis {} of {} axes", given, rank);
  const auto middle = x.shape.begin() + (given < 0 ? given + rank : given);
  return op.reshaped(x, {numel(Shape(x.shape.begin(), middle)), numel(Shape(middle, x.shape.end()))}, {});
}

ImportValue reshape(const OpImport& op) {
  return op.reshaped(op.value(), target_shape(op, op.value().shape), {});
}

ImportValue squeeze(const OpImport& op) {
  const ImportValue& x = op.value();
  const auto axes = normalized_axes(op, op.list("axes", 1), static_cast<int>(x.shape.size()));
  Shape to;
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    const bool named = std::ranges::find(axes, static_cast<int>(i)) != axes.end();
    // The symbolic batch is never 1, although the file may have a batch of 1.
    op.check(!named || x.shape[i] == 1, "it removes axis {}, which is the batch or has several elements", i);
    if (x.shape[i] != 1 || (!axes.empty() && !named)) to.push_back(x.shape[i]);
  }
  return op.reshaped(x, to, {});
}

ImportValue unsqueeze(const OpImport& op) {
  const ImportValue& x = op.value();
  const auto given = op.list("axes", 1);
  op.check(given.size() + x.shape.size() <= 8, "it makes {} axes: up to 8 are supported",
           given.size() + x.shape.size());
  const auto axes = normalized_axes(op, given, static_cast<int>(x.shape.size() + given.size()));
  Shape to = x.shape;
  for (const int axis : std::set<int>(axes.begin(), axes.end())) to.insert(to.begin() + axis, 1);
  return op.reshaped(x, to, {});
}

ImportValue transpose(const OpImport& op) {
  const ImportValue& x = op.value();
  const int rank = static_cast<int>(x.shape.size());
  auto order = op.integers("perm");
  if (order.empty())
    for (int i = rank - 1; i >= 0; --i) order.push_back(i);
  const auto axes = normalized_axes(op, order, rank);
  op.check(static_cast<int>(axes.size()) == rank, "it orders the axes {} of {}", to_string(order), rank);
  if (std::ranges::is_sorted(axes)) return x;
  return op.layer("transpose", {{"axes", Shape(axes.begin(), axes.end())}}, {x});
}

ImportValue concat(const OpImport& op) {
  std::vector<ImportValue> parts;
  std::size_t values = 0;
  const auto is_value = [&](std::size_t i) { return !op.is_constant(i) && !op.input(i).is_empty(); };
  while (values < op.input_count() && !is_value(values)) ++values;
  op.check(values < op.input_count(), "it joins only constants");
  const ImportValue& x = op.value(values);
  for (std::size_t i = 0; i < op.input_count(); ++i)
    // An empty slice adds nothing to the output.
    if (!op.input(i).is_empty()) parts.push_back(op.is_constant(i) ? op.each(i) : op.value(i));
  const int axis = normalized_axes(op, {op.integer("axis", 1, -8, 8)}, static_cast<int>(x.shape.size()))[0];
  op.check(axis != batch_axis(x.shape), "it joins along the batch, axis {}", axis);
  if (parts.size() == 1) return parts[0];
  NodeOptions options;
  if (axis != 1) options["axis"] = axis;
  return op.layer("concat", options, parts);
}

}  // namespace fq::detail::onnx_ops
