#include "fakequant/core/detail/quantizer_checks.h"

#include "fakequant/core/detail/check.h"
#include "fakequant/core/detail/text.h"
#include "fakequant/core/numerics/detail/grid_formulas.h"

namespace fq::detail {
namespace {

constexpr const char* kRanges = "it must be finite and not negative";

}  // namespace

void check_amax(float amax, const std::string& name) {
  FQ_CHECK(is_range(amax), "quantizer", "amax of {} is {}: {}", quantizer_label(name), amax, kRanges);
}

std::string ranges_message(const Grid& grid) {
  return fmt::format("[quantizer] amax of {} is negative, infinite or NaN: {}", quantizer_label(grid.name),
                     kRanges);
}

void check_device(const Grid& grid, const Tensor& x, std::string_view function) {
  // A trace on `meta` reads no scales, so their device is irrelevant.
  FQ_CHECK(x.device().is_meta() || grid.scale.device() == x.device(), function,
           "amax of {} is on {}, the input on {}: move one of them", quantizer_label(grid.name),
           to_string(grid.scale.device()), to_string(x.device()));
}

std::string nan_message(const Grid& grid) {
  return fmt::format("[quantize] a NaN reached the quantizer{}",
                     grid.name.empty() ? "" : fmt::format(" '{}'", grid.name));
}

std::string bias_nan_message(const Grid& weight) {
  return fmt::format("[quantize] a NaN is in the bias of the layer with {}", quantizer_label(weight.name));
}

// Integers and E4M3 with one scale, or one per channel, have kernels of their own. Everything else uses the
// block kernels, which also check that the blocks fit.
bool needs_block_kernels(const Grid& grid, const Shape& shape, std::string_view function) {
  const bool other = !grid.format.is_integer() && grid.format.floating() != FloatFormat{4, 3};
  const bool one =
      grid.granularity.is_per_tensor() || grid.granularity.single_axis(static_cast<int>(shape.size())) >= 0;
  if (one && !other) return false;
  const std::int64_t blocks = numel(grid.granularity.scale_shape(shape));
  FQ_CHECK(grid.amax.numel() == blocks || numel(shape) == 0, function,
           "amax of {} has {} elements, the input {} has {} blocks: use one amax per block",
           quantizer_label(grid.name), grid.amax.numel(), to_string(shape), blocks);
  return true;
}

// Scales of blocks are indexed in the memory order of the values, so they need the same layout.
Tensor numbers_in_memory(const Tensor& numbers, const Granularity& by, const Shape& shape, Layout layout) {
  if (numbers.layout() == layout || numbers.numel() == 1) return numbers;
  return numbers.to(Layout::row_major).reshape(by.scale_shape(shape)).to(layout);
}

int channel_axis(const Grid& grid, const Shape& shape, std::string_view function) {
  if (grid.granularity.is_per_tensor()) {
    FQ_CHECK(grid.amax.numel() == 1, function, "amax of {} has {} elements, a per-tensor quantizer has one",
             quantizer_label(grid.name), grid.amax.numel());
    return -1;
  }
  const int axis = grid.granularity.single_axis(static_cast<int>(shape.size()));
  FQ_CHECK(axis >= 0, function, "{} is quantized {}: codes are per tensor or along one axis",
           quantizer_label(grid.name), to_string(grid.granularity));
  FQ_CHECK(grid.amax.numel() == shape[static_cast<std::size_t>(axis)], function,
           "amax of {} has {} elements, the input {} has {} channels on axis {}: use one amax per channel",
           quantizer_label(grid.name), grid.amax.numel(), to_string(shape),
           shape[static_cast<std::size_t>(axis)], axis);
  return axis;
}

}  // namespace fq::detail
