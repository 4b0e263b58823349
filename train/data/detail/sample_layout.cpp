#include "fakequant/train/data/detail/sample_layout.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "fakequant/core/detail/convert.h"

namespace fq::detail {
namespace {

constexpr std::int64_t kFewest = 4;  // image axes have more pixels; no image has more channels

/// Returns the order of the axes of `sample` that gives `wanted`. Axes of equal size keep their order.
std::vector<std::size_t> axes_order(const Shape& sample, const Shape& wanted) {
  std::vector<std::size_t> order;
  for (const auto size : wanted) {
    // Each size of `wanted` takes the first unused axis of that size.
    std::size_t axis = 0;
    while (axis < sample.size() && (sample[axis] != size || std::ranges::find(order, axis) != order.end()))
      ++axis;
    if (axis == sample.size()) return {};
    order.push_back(axis);
  }
  return order;
}

}  // namespace

ChannelsLast looks_channels_last(const Shape& sample) {
  if (sample.size() != 3 || sample[0] <= kFewest || sample[1] <= kFewest) return ChannelsLast::no;
  const std::int64_t last = sample[2];
  if (last != 1 && last != 3 && last != 4) return ChannelsLast::no;
  // A last axis of 1 is surely a channel only in a square image.
  return last > 1 || sample[0] == sample[1] ? ChannelsLast::surely : ChannelsLast::perhaps;
}

std::string way_to_shape(const Shape& sample, const Shape& wanted) {
  if (numel(sample) != numel(wanted)) return {};
  if (const auto order = axes_order(sample, wanted); sample.size() == wanted.size() && !order.empty()) {
    std::string axes = "0";
    for (const auto axis : order) axes += fmt::format(", {}", axis + 1);
    return fmt::format("write x.transpose({})", axes);
  }
  return fmt::format("write x.reshape(-1, {})", fmt::join(wanted, ", "));
}

bool looks_like_bytes(std::span<const std::byte> bytes, DType dtype) {
  return visit_dtype(dtype, "dataset", [&]<class T>(T) {
    const auto* values = reinterpret_cast<const T*>(bytes.data());
    const auto end = values + bytes.size() / sizeof(T);
    float largest = 0;
    for (const auto* value = values; value != end; ++value) {
      const auto now = static_cast<float>(*value);
      if (!(now >= 0 && now <= 255)) return false;
      largest = std::max(largest, now);
    }
    // Values up to 127 could be any small counts.
    return largest >= 128;
  });
}

}  // namespace fq::detail
