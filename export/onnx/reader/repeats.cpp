#include <algorithm>

#include "fakequant/export/onnx/reader/folding/fold.h"
#include "fakequant/export/onnx/reader/operators.h"

namespace fq::detail::onnx_ops {
namespace {

/// Moves the first axis, the samples, to another position.
ImportValue move_samples(const OpImport& op, const ImportValue& x, int place) {
  if (place == 0) return x;
  Shape axes;
  for (int axis = 1; axis < value_rank(x); ++axis) axes.push_back(axis);
  axes.insert(axes.begin() + place, 0);
  return op.layer("transpose", {{"axes", axes}}, {x}, {}, "samples");
}

}  // namespace

/// Repeats sizes of 1. Repeats a constant once for each sample.
ImportValue expand(const OpImport& op) {
  Shape to = integer_list(op, op.constant(1));
  const int samples = batch_axis(to);
  if (op.is_constant(0)) {
    const Tensor& x = op.constant(0);
    // A single number may be expanded to a batch on any axis: the axis is first in a layer, and then moved.
    if (samples > 0 && x.numel() == 1) {
      Shape each = to;
      each.erase(each.begin() + samples);
      op.check(to[static_cast<std::size_t>(samples)] == kSymbolicBatch && numel(each) <= kLargestSize,
               "it makes {} of a constant", batch_text(to));
      return move_samples(op, op.parameter(Tensor::full(each, x.item()), each, false, true), samples);
    }
    op.check(samples == 0 && to[0] == kSymbolicBatch, "it makes {} of a constant", batch_text(to));
    Shape own = x.shape();
    if (own.size() == to.size()) own.erase(own.begin());
    const ImportValue each = op.parameter(x, own, op.input(0).learned, true);
    to = broadcast_shapes(each.shape, to, "import_onnx");
    return each.shape == to ? each : op.layer("expand", {{"shape", Shape(to.begin() + 1, to.end())}}, {each});
  }
  const ImportValue& x = op.value();
  // The target shape of a file with a fixed batch contains that batch.
  if (!to.empty() && samples < 0 && to.size() == x.shape.size() && op.is_batch(to[0])) to[0] = x.shape[0];
  to = broadcast_shapes(x.shape, to, "import_onnx");
  if (to == x.shape) return x;
  op.check(std::all_of(to.begin() + 1, to.end(), [](auto size) { return size <= kLargestPad; }),
           "it makes {}: up to {} elements along an axis are supported", batch_text(to), kLargestPad);
  op.check(to.size() == x.shape.size() && to[0] == x.shape[0], "it makes {} of {}", to_string(to),
           to_string(x.shape));
  return op.layer("expand", {{"shape", Shape(to.begin() + 1, to.end())}}, {x});
}

ImportValue strided(const OpImport& op) {
  Shape to = op.integers("shape");
  to.insert(to.begin(), kSymbolicBatch);
  return op.reshaped(op.value(), to, {});
}

/// Returns the same number for each sample.
ImportValue constant_of_shape(const OpImport& op) {
  const Shape to = integer_list(op, op.constant(0));
  const int samples = batch_axis(to);
  op.check(to.size() >= 2 && samples >= 0 && to[static_cast<std::size_t>(samples)] == kSymbolicBatch,
           "it makes {} elements of each sample", batch_text(to));
  const auto* value = op.node().attribute("value");
  const auto* tensor = value != nullptr ? std::get_if<Tensor>(value) : nullptr;
  Shape each = to;
  each.erase(each.begin() + samples);
  op.check(numel(each) <= kLargestSize, "it makes {} elements", numel(each));
  const Tensor numbers = Tensor::full(each, tensor == nullptr ? 0.0 : tensor->item());
  return move_samples(op, op.parameter(numbers, each, false, true), samples);
}

ImportValue tile(const OpImport& op) {
  ImportValue x = op.value();
  const std::vector<std::int64_t> repeats = integer_list(op, op.constant(1));
  op.check(std::ssize(repeats) == value_rank(x), "it has {} repeats of {} axes", repeats.size(),
           x.shape.size());
  for (int axis = 0; axis < value_rank(x); ++axis) {
    const std::int64_t times = repeats[static_cast<std::size_t>(axis)];
    if (times == 1) continue;
    op.check(axis != batch_axis(x.shape), "it repeats samples: its axis {} is the batch", axis);
    op.check(times >= 1 && times <= 1024, "it repeats an axis {} times: 1 to 1024 are supported", times);
    x = op.layer("concat", {{"axis", axis}}, std::vector<ImportValue>(static_cast<std::size_t>(times), x), {},
                 "tile" + std::to_string(axis));
  }
  return x;
}

}  // namespace fq::detail::onnx_ops
