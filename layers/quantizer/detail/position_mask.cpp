#include "fakequant/layers/quantizer/detail/position_mask.h"

#include <algorithm>
#include <cstring>

#include "fakequant/core/detail/check.h"

namespace fq::detail {
namespace {

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t out = 1;
  for (std::size_t i = begin; i < end; ++i) out *= shape[i];
  return out;
}

// Whether each index of the axis has its own range. Axes may count from the back.
bool keeps(const Axes& kept, int axis, int rank) {
  return std::ranges::any_of(kept.values(), [&](int own) { return (own < 0 ? own + rank : own) == axis; });
}

}  // namespace

PositionMask::PositionMask(const Tensor& mask) {
  FQ_CHECK(mask.defined() && mask.rank() == 2, "calibrate",
           "mask is {}: use [N, T], a number for each position of each sample, 0 for padding",
           mask.defined() ? mask.describe() : "undefined");
  samples_ = mask.dim(0);
  positions_ = mask.dim(1);
  const auto values = mask.to(Device::cpu()).to(DType::f32).to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] != 0) data_.push_back(static_cast<std::int64_t>(i));
}

/// Returns the axis of the positions: -1 if there is none, 0 if the rows are all positions of all samples.
int PositionMask::position_axis(const Shape& shape) const {
  const auto rank = static_cast<int>(shape.size());
  // Linear layers on [N * T, features].
  if (rank >= 2 && shape[0] == samples_ * positions_ && positions_ > 1) return 0;
  if (rank < 3 || shape[0] != samples_) return -1;
  if (shape[1] == positions_) return 1;
  // A later axis holds the positions only if no other axis has the same size.
  const auto is_one = [this](std::int64_t size) { return size == positions_; };
  const auto found = std::find_if(shape.begin() + 2, shape.end(), is_one);
  const bool alone = found != shape.end() && std::find_if(found + 1, shape.end(), is_one) == shape.end();
  return alone ? static_cast<int>(found - shape.begin()) : -1;
}

Tensor PositionMask::remove_padding(const Tensor& x, const Axes& kept) const {
  const int axis = position_axis(x.shape());
  if (axis < 0 || keeps(kept, axis, x.rank()) || keeps(kept, 0, x.rank()) || !is_floating(x.dtype()) ||
      is_storage_only(x.dtype()))
    return x;
  // Counted before the early return: a mask without padding has matched too.
  ++matches_;
  const auto count = static_cast<std::int64_t>(data_.size());
  if (count == samples_ * positions_) return x;
  Shape shape = x.shape();
  const auto index = static_cast<std::size_t>(axis);
  // x is [samples, before, positions, bytes]; [1, 1, samples * positions, bytes] for axis 0.
  const std::int64_t before = axis == 0 ? 1 : product(shape, 1, index);
  const std::int64_t bytes = product(shape, index + 1, shape.size()) * byte_size(x.dtype(), 1);
  const std::int64_t length = axis == 0 ? samples_ * positions_ : positions_;
  if (axis > 0) shape[0] = 1;
  shape[index] = count;
  const Tensor source = x.to(Device::cpu()).to(Layout::row_major);
  Tensor out = Tensor::empty(shape, x.dtype());
  const auto* from = static_cast<const std::byte*>(source.raw());
  auto* to = static_cast<std::byte*>(out.mutable_raw());
  for (std::int64_t outer = 0; outer < before; ++outer)
    for (const std::int64_t position : data_) {
      // data_ counts through all samples: position = sample * positions + t. For axis 0, the sample is always
      // 0.
      const std::int64_t sample = position / length;
      std::memcpy(to, from + ((sample * before + outer) * length + position % length) * bytes,
                  static_cast<std::size_t>(bytes));
      to += bytes;
    }
  return out.to(x.device());
}

Tensor seen_by_ranges(const Tensor& x, const QuantDescriptor& descriptor) {
  const PositionMask* mask = context().position_mask;
  if (mask == nullptr || (!descriptor.block_sizes().empty() && !descriptor.has_dynamic_blocks())) return x;
  return mask->remove_padding(x, descriptor.axis());
}

}  // namespace fq::detail
