#include "fakequant/layers/quantizer/detail/block_ranges.h"

#include <algorithm>

#include <fmt/format.h>

#include "fakequant/calib/detail/ranges.h"
#include "fakequant/core/detail/moves.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/tape.h"

namespace fq::detail {
namespace {

/// Returns a row-major tensor of shape `to`: the common corner of `from`, and zeros elsewhere.
Tensor resized(const Tensor& from, const Shape& to) {
  Tensor out = from;
  for (int axis = 0; axis < from.rank(); ++axis) {
    const std::int64_t size = from.dim(axis), wanted = to[static_cast<std::size_t>(axis)];
    if (size > wanted) out = cut(out, axis, 0, wanted);
    if (size >= wanted) continue;
    Shape rest = out.shape();
    rest[static_cast<std::size_t>(axis)] = wanted - size;
    out = join({out, Tensor::zeros(rest, out.dtype(), out.device())}, axis);
  }
  return out;
}

// Returns the block lengths with axes counted from the front.
std::map<int, std::int64_t> front_lengths(const BlockSizes& blocks, int rank) {
  std::map<int, std::int64_t> out;
  for (const auto& [axis, length] : blocks.lengths) out[normalize_axis(axis, rank, "quantizer")] = length;
  return out;
}

bool all_whole(const std::map<int, std::int64_t>& lengths) {
  return std::ranges::all_of(lengths, [](const auto& l) { return l.second == Granularity::whole; });
}

}  // namespace

BlockView::BlockView(const Shape& shape, Axes kept)
    : shape_(shape), padded_(shape), view_(shape), kept_(std::move(kept)) {}

BlockView::BlockView(const Shape& shape, const std::map<int, std::int64_t>& lengths)
    : shape_(shape), padded_(shape) {
  std::vector<int> kept;
  const int rank = static_cast<int>(shape.size());
  for (int axis = 0; axis < rank; ++axis) {
    const auto size = shape[static_cast<std::size_t>(axis)];
    kept.push_back(static_cast<int>(view_.size()));
    const auto found = lengths.find(axis);
    if (found == lengths.end()) {
      view_.push_back(size);
      continue;
    }
    const std::int64_t length = found->second == Granularity::whole ? size : std::min(found->second, size);
    // An empty axis has one empty block, so that shapes stay valid.
    const std::int64_t blocks = length == 0 ? 1 : (size + length - 1) / length;
    padded_[static_cast<std::size_t>(axis)] = blocks * length;
    view_.insert(view_.end(), {blocks, length});
  }
  last_axis_ = lengths.size() == 1 && lengths.contains(rank - 1);
  if (last_axis_) {
    // ModelOpt flattens blocks along the last axis to [blocks, length].
    view_ = {numel(padded_) / view_.back(), view_.back()};
    kept = {0};
  }
  kept_ = kept;
}

BlockView BlockView::of(const QuantDescriptor& descriptor, const Shape& shape) {
  const BlockSizes& blocks = descriptor.block_sizes();
  if (blocks.empty()) return {shape, descriptor.axis()};
  // Scales of dynamic blocks come from each input; only the range of the whole tensor is stored.
  if (descriptor.has_dynamic_blocks() || numel(shape) == 0) return {shape, Axes{}};
  const int rank = static_cast<int>(shape.size());
  const auto lengths = front_lengths(blocks, rank);
  if (!all_whole(lengths)) return {shape, lengths};
  // Blocks that are whole axes are ranges for the other axes.
  std::vector<int> kept;
  for (int axis = 0; axis < rank; ++axis)
    if (!lengths.contains(axis)) kept.push_back(axis);
  return {shape, Axes(kept)};
}

Shape BlockView::range_shape() const {
  Shape out(view_.size(), 1);
  for (const int axis : kept_.values()) {
    const auto i =
        static_cast<std::size_t>(normalize_axis(axis, static_cast<int>(view_.size()), "quantizer"));
    out[i] = view_[i];
  }
  return out;
}

Tensor BlockView::apply(const Tensor& x) const {
  if (view_ == shape_) return x;
  return resized(x.to(Layout::row_major), padded_).reshape(view_);
}

Tensor BlockView::restore(const Tensor& y) const {
  if (view_ == shape_) return y;
  return resized(y.to(Layout::row_major).reshape(padded_), shape_);
}

Variable BlockView::apply(const Variable& x) const {
  if (view_ == shape_) return x;
  return record("to_blocks", apply(x.tensor()), {x},
                [view = *this](const Tensor& dy) { return std::vector<Tensor>{view.restore(dy)}; });
}

Variable BlockView::restore(const Variable& y) const {
  if (view_ == shape_) return y;
  return record("from_blocks", restore(y.tensor()), {y},
                [view = *this](const Tensor& dy) { return std::vector<Tensor>{view.apply(dy)}; });
}

Tensor flat_ranges(const Tensor& amax) { return listed(amax.to(Device::cpu()).to(DType::f32).clone()); }

Tensor listed(const Tensor& amax) { return amax.numel() == 1 ? amax.reshape({}) : amax.reshape({-1}); }

Tensor compute_ranges(const Tensor& x, const BlockView& view, const std::string& quantizer) {
  const Tensor out = amax(view.apply(x.to(DType::f32)), view.kept(), "quantizer");
  check_finite(out, "quantizer", quantizer);
  return listed(out);
}

Tensor compute_ranges(const Tensor& x, const Granularity& granularity, const std::string& quantizer) {
  const Tensor out = block_amax(x.to(DType::f32), granularity);
  check_finite(out, "quantizer", quantizer);
  // A range per index of one axis is a list, as flat_ranges has it.
  return granularity.single_axis(x.rank()) < 0 ? out : listed(out.to(Layout::row_major));
}

void rethrow_named(const NumericError& error, const std::string& quantizer) {
  throw NumericError(fmt::format("{}, at {}", error.what(), quantizer_label(quantizer)));
}

}  // namespace fq::detail
